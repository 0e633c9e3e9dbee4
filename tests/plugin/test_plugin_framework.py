"""The author framework with a kubelet, over real sockets.

Known weaknesses of the Go framework of the same kind (dpm), and the tests for ours:

| weakness | test |
|---|---|
| a socket is leaked per kubelet restart | test_twenty_kubelet_restarts_leave_nothing_behind |
| its socket stays after SIGTERM | test_signal_stops_the_plugin_… in test_plugin_processes |
| its socket is deleted | test_deleted_socket_is_recreated |
| its ListAndWatch stream is cut | test_cut_stream_leads_to_a_registration_on_another_socket |
| socket paths over 107 bytes | test_long_resource_name_gets_a_short_socket |
| a hook that raises | test_failing_start_is_retried_and_affects_only_its_resource |
| the handler of a dead stream does not return | test_handler_of_a_dead_stream_returns |
| and consumes a change | test_hundred_restarts_lose_no_change |
"""

import logging
import os
import random
import socket
import threading
import time
from logging.handlers import QueueHandler
from queue import SimpleQueue

import attrs
import grpc
import psutil
import pytest

from checkpoint import CHECKPOINT_NAME
from devicemanager.io.watch import DirectoryWatch
from devicemanager.plugin import (
    ConfigurationError,
    ContainerSettings,
    Device,
    Lister,
    Manager,
    Plugin,
    PluginError,
    PluginSettings,
    StaticLister,
    serve,
)
from devicemanager.plugin.resource import Resource, ResourceState
from devicemanager.plugin.service import Service
from protos import deviceplugin_v1beta1 as dp
from tests.hostile.residue import Residue, assert_back_to, eventually
from tests.plugin.stubkubelet import TIMEOUT, StubKubelet

GPU = "vendor.com/gpu"


class Gpus(Plugin):
    """Two devices; ``update`` changes them."""

    def devices(self):
        return ["gpu-0", Device("gpu-1", numa=1)]

    def allocate(self, device_ids):
        return ContainerSettings(envs={"GPUS": ",".join(device_ids)}, devices=["/dev/null"])


def manager_of(directory, settings, **plugins):
    return Manager(StaticLister("vendor.com", plugins or {"gpu": Gpus()}), directory, settings)


def sockets(directory):
    return sorted(e.name for e in directory.iterdir() if e.name != "kubelet.sock")


@pytest.fixture
def records():
    """Function that waits for the next log record of the plugin's side with a text."""
    queue = SimpleQueue()
    handler = QueueHandler(queue)
    logger = logging.getLogger("devicemanager.plugin")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)

    def next_with(text):
        while text not in (record := queue.get(timeout=TIMEOUT)).getMessage():
            pass
        return record

    yield next_with
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_plugin_registers_lists_and_allocates(kubelet, fast):
    with manager_of(kubelet.directory, fast) as manager:
        plugin = kubelet.plugin()
        request = plugin.request
        assert (request.version, request.endpoint) == ("v1beta1", "vendor.com_gpu")
        assert request.options == plugin.options == dp.DevicePluginOptions()
        assert plugin.devices == {"gpu-0": "Healthy", "gpu-1": "Healthy"}
        first, second = plugin.lists[0].devices
        assert not first.HasField("topology")
        assert [node.ID for node in second.topology.nodes] == [1]
        answer = plugin.allocate(["gpu-1", "gpu-0"], ["gpu-0"])
        assert [c.envs["GPUS"] for c in answer.container_responses] == ["gpu-0,gpu-1", "gpu-0"]
        assert manager.wait_registered(TIMEOUT, streaming=True)
        (status,) = manager.resources()
        assert (status.state, status.endpoint) == (ResourceState.REGISTERED, "vendor.com_gpu")
    assert sockets(kubelet.directory) == []


def test_options_follow_from_overridden_hooks(kubelet, fast):
    class Choosy(Gpus):
        def preferred_allocation(self, available, must_include, size):
            return reversed(available)

        def pre_start_container(self, device_ids):
            raise RuntimeError(f"cannot reset {device_ids[0]}")

    with manager_of(kubelet.directory, fast, gpu=Choosy()):
        plugin = kubelet.plugin()
        assert plugin.options.pre_start_required
        assert plugin.options.get_preferred_allocation_available
        assert plugin.request.options == plugin.options
        request = dp.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=["gpu-0", "gpu-1"], allocation_size=1)
        answer = plugin.stub.GetPreferredAllocation(request)
        assert [list(c.deviceIDs) for c in answer.container_responses] == [["gpu-1"]]
        with pytest.raises(grpc.RpcError) as error:
            plugin.stub.PreStartContainer(dp.PreStartContainerRequest(devices_ids=["gpu-1"]))
        assert error.value.code() is grpc.StatusCode.UNKNOWN
        assert error.value.details() == "RuntimeError: cannot reset gpu-1"


def test_twenty_kubelet_restarts_leave_nothing_behind(kubelet, fast):
    process = psutil.Process()

    def settled():
        plugin = kubelet.plugin()
        assert plugin.devices == {"gpu-0": "Healthy", "gpu-1": "Healthy"}
        return process.num_fds(), threading.active_count(), len(list(kubelet.directory.iterdir()))

    with manager_of(kubelet.directory, fast):
        settled()
        kubelet.restart()
        descriptors, threads, files = settled()
        kubelet.requests.clear()
        for _ in range(20):
            kubelet.restart()
            after = settled()
        assert len(kubelet.requests) == 20
        assert after[0] <= descriptors + 2
        assert after[1] <= threads + 4
        assert after[2] == files == 2


def test_hundred_restarts_lose_no_change(kubelet, fast):
    plugin = Gpus()
    with manager_of(kubelet.directory, fast, gpu=plugin):
        kubelet.plugin()
        for turn in range(100):
            kubelet.restart()
            kubelet.plugin()
            plugin.update([f"gpu-{turn}"])
            kubelet.wait_devices({f"gpu-{turn}": "Healthy"})
        assert len(kubelet.requests) > 100


def test_handler_of_a_dead_stream_returns(kubelet, fast):
    """No change of the list wakes it."""
    waiting, ended = threading.Event(), threading.Event()

    class Watched(Service):
        def ListAndWatch(self, request, context):
            yield from super().ListAndWatch(request, context)
            ended.set()

    plugin = Gpus()
    wait_newer = plugin._device_list.wait_newer

    def watched(version, ended):
        if version > 0:
            waiting.set()
        return wait_newer(version, ended)

    plugin._device_list.wait_newer = watched
    lister = StaticLister("vendor.com", {"gpu": plugin})
    with Manager(lister, kubelet.directory, fast, _service=Watched):
        connection = kubelet.plugin()
        assert waiting.wait(TIMEOUT)
        connection.cut()
        assert ended.wait(10)


def test_changes_without_a_kubelet_are_sent_to_the_next_one(kubelet, fast):
    plugin = Gpus()
    with manager_of(kubelet.directory, fast, gpu=plugin):
        kubelet.plugin()
        kubelet.stop()
        plugin.update([Device("gpu-7", healthy=False)])
        kubelet.start()
        kubelet.wait_devices({"gpu-7": "Unhealthy"})


@pytest.mark.parametrize("gap", [0, 0.01, 0.05])
def test_quick_restarts_end_with_the_last_kubelet(kubelet, fast, gap):
    with manager_of(kubelet.directory, fast):
        for turn in range(6):
            kubelet.restart()
            # In every second turn: right after Register arrives, before the first list.
            if turn % 2:
                kubelet.wait(lambda k: k.requests)
            threading.Event().wait(gap)
            kubelet.requests.clear()
        kubelet.restart()
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})


@pytest.mark.parametrize("seed", range(3))
def test_newest_list_arrives_after_any_mix_of_failures(kubelet, fast, seed):
    """After any mix of restarts, cut streams and deleted sockets."""
    chance = random.Random(seed)
    plugin = Gpus()
    # The plugin may miss a stream that is cut at once: it then needs `stream_wait`.
    settings = attrs.evolve(fast, stream_wait=0.3)

    def cut():
        for connection in list(kubelet.connections):
            connection.cut()

    def delete():
        for entry in kubelet.directory.iterdir():
            if entry.name != "kubelet.sock" and not entry.name.startswith("."):
                entry.unlink(missing_ok=True)

    with manager_of(kubelet.directory, settings, gpu=plugin):
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})
        for turn in range(15):
            for event in chance.choices([kubelet.restart, cut, delete], k=chance.randint(1, 3)):
                event()
            plugin.update([f"gpu-{turn}"])
            kubelet.wait_devices({f"gpu-{turn}": "Healthy"})


def test_deleted_socket_is_recreated(kubelet, fast):
    with manager_of(kubelet.directory, fast):
        (kubelet.directory / kubelet.plugin().request.endpoint).unlink()
        kubelet.wait(lambda k: len(k.requests) == 2, "another registration")
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})
        assert sockets(kubelet.directory) == [kubelet.requests[1].endpoint]


def test_cut_stream_leads_to_a_registration_on_another_socket(kubelet, fast):
    with manager_of(kubelet.directory, fast):
        first = kubelet.plugin()
        first.cut()
        kubelet.wait(lambda k: len(k.requests) == 2, "another registration")
        second = kubelet.plugin()
        assert second.request.endpoint != first.request.endpoint
        assert sockets(kubelet.directory) == [second.request.endpoint]


def test_replaced_kubelet_socket_is_noticed(kubelet, fast):
    with manager_of(kubelet.directory, fast):
        kubelet.plugin()
        # An atomic rename: the plugin's socket and its ListAndWatch stream are not affected.
        other = StubKubelet(kubelet.directory)
        try:
            other.serve("next.sock")
            (kubelet.directory / "next.sock").rename(kubelet.directory / "kubelet.sock")
            other.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})
        finally:
            other.stop()


def test_open_stream_means_no_second_registration(kubelet, directory):
    settings = PluginSettings(
        recheck=0.01, stream_delay=0.0, stream_wait=0.05, list_interval=0.001, stop_grace=0.2
    )
    plugin = Gpus()
    with manager_of(directory, settings, gpu=plugin):
        kubelet.plugin()
        for turn in range(20):
            plugin.update([f"gpu-{turn}"])
            kubelet.wait_devices({f"gpu-{turn}": "Healthy"})
        assert len(kubelet.requests) == 1


def test_plugin_registers_again_if_the_kubelet_opens_no_stream(directory):
    settings = PluginSettings(recheck=0.01, stream_wait=0.05, stop_grace=0.2)
    with StubKubelet(directory, consume=False) as kubelet, manager_of(directory, settings):
        kubelet.wait(lambda k: len(k.requests) == 3, "a third registration")


def test_slow_register_does_not_block_calls_and_lists(kubelet, fast):
    kubelet.hold = threading.Event()
    plugin = Gpus()
    with manager_of(kubelet.directory, fast, gpu=plugin) as manager:
        # All of this happens before the response to Register.
        assert kubelet.plugin().allocate(["gpu-0"]).container_responses
        plugin.update(["gpu-3"])
        kubelet.wait_devices({"gpu-3": "Healthy"})
        assert manager.resources()[0].state is ResourceState.SERVING
        kubelet.hold.set()
        assert manager.wait_registered(TIMEOUT)
        assert len(kubelet.requests) == 1


def test_kubelet_that_exits_during_register_is_replaced(kubelet, fast):
    kubelet.hold = hold = threading.Event()
    with manager_of(kubelet.directory, fast):
        kubelet.plugin()
        kubelet.hold = None
        hold.set()
        kubelet.restart()
        kubelet.plugin()


def test_stopping_does_not_wait_for_register(kubelet, fast):
    kubelet.hold = threading.Event()
    manager = manager_of(kubelet.directory, fast)
    manager.start()
    kubelet.plugin()
    manager.stop()
    assert manager.resources()[0].state is ResourceState.STOPPED
    kubelet.hold.set()


def test_rejection_is_retried_with_backoff(kubelet, fast, caplog):
    kubelet.reject = "not today"
    with manager_of(kubelet.directory, fast):
        kubelet.wait(lambda k: len(k.requests) >= 4, "a fourth attempt")
        kubelet.reject = None
        kubelet.plugin()
    pauses = [b - a for a, b in zip(kubelet.times, kubelet.times[1:], strict=False)]
    assert pauses[0] >= 0.05 and pauses[1] >= 0.1
    assert "registration failed: not today (UNKNOWN)" in caplog.text


def test_rejected_resource_does_not_block_another(directory, fast):
    class Picky(StubKubelet):
        def Register(self, request, context):
            self.reject = "no" if request.resource_name == "vendor.com/bad" else None
            return super().Register(request, context)

    with Picky(directory) as kubelet, manager_of(directory, fast, bad=Gpus(), gpu=Gpus()):
        kubelet.plugin(GPU)
        kubelet.wait(lambda k: sum(r.resource_name == "vendor.com/bad" for r in k.requests) > 2)
        assert {r.endpoint for r in kubelet.requests} == {"vendor.com_bad", "vendor.com_gpu"}


@pytest.mark.parametrize("before", ["no directory", "no socket", "stale socket"])
def test_plugin_can_start_before_the_kubelet(directory, fast, before):
    target = directory / "device-plugins"
    if before != "no directory":
        target.mkdir()
    if before == "stale socket":
        stale_socket(target / "kubelet.sock")
    settings = PluginSettings(recheck=0.05, register_backoff=0.05, stop_grace=0.2)
    with manager_of(target, settings), StubKubelet(target) as kubelet:
        kubelet.plugin()


def test_recreated_directory_is_served_again(directory):
    target = directory / "device-plugins"
    settings = PluginSettings(recheck=0.05, stop_grace=0.2)
    with manager_of(target, settings):
        for _ in range(3):
            with StubKubelet(target) as kubelet:
                kubelet.plugin()
            for entry in target.iterdir():
                entry.unlink(missing_ok=True)
            target.rmdir()


@pytest.mark.usefixtures("no_idle_observers")
def test_without_inotify_the_sockets_are_polled(kubelet, monkeypatch, caplog):
    def exhausted(*_, **__):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("watchdog.observers.inotify.InotifyObserver.__init__", exhausted)
    with manager_of(kubelet.directory, PluginSettings(recheck=0.02, stop_grace=0.2)):
        kubelet.plugin()
        kubelet.restart()
        kubelet.plugin()
        (kubelet.directory / kubelet.plugin().request.endpoint).unlink()
        kubelet.wait(lambda k: len(k.requests) == 3, "a third registration")
    assert caplog.text.count("cannot watch") == 1


def test_checkpoint_writes_wake_no_plugin(kubelet, fast, monkeypatch):
    notified, again = [], threading.Event()
    notify = Manager._notify_all

    def count(manager):
        notified.append(manager)
        again.set()
        notify(manager)

    with manager_of(kubelet.directory, fast):
        kubelet.plugin()
        monkeypatch.setattr(Manager, "_notify_all", count)
        # Events are ordered: after the first one, only those of the files below are counted.
        (kubelet.directory / "first.sock").touch()
        assert again.wait(TIMEOUT)
        again.clear()
        notified.clear()
        for _ in range(5):
            (kubelet.directory / ".123").write_text("{}")
            (kubelet.directory / ".123").replace(kubelet.directory / CHECKPOINT_NAME)
        (kubelet.directory / "last.sock").touch()
        assert again.wait(TIMEOUT)
        assert len(notified) == 1


def test_long_resource_name_gets_a_short_socket(kubelet, fast):
    name = "n" * 63
    namespace = ".".join(["d" * 40] * 5)
    manager = Manager(StaticLister(namespace, {name: Gpus()}), kubelet.directory, fast)
    with manager:
        request = kubelet.plugin(f"{namespace}/{name}").request
        assert len(f"/var/lib/kubelet/device-plugins/{request.endpoint}") <= 107


def test_two_instances_never_share_a_socket(kubelet, fast):
    with manager_of(kubelet.directory, fast) as new_manager:
        first = kubelet.plugin()
        old = manager_of(kubelet.directory, fast)
        old.start()
        kubelet.wait(lambda k: len(k.requests) == 2, "the other instance")
        assert old.wait_registered(TIMEOUT, streaming=True)
        assert kubelet.requests[1].endpoint != first.request.endpoint
        old.stop()
        assert sockets(kubelet.directory) == [first.request.endpoint]
        assert not first.ended and first.allocate(["gpu-0"])
        assert new_manager.resources()[0].registrations == 1


def test_stop_keeps_the_socket_of_a_successor(kubelet, fast):
    manager = manager_of(kubelet.directory, fast)
    manager.start()
    path = kubelet.directory / kubelet.plugin().request.endpoint
    kubelet.reject = "no"
    with socket.socket(socket.AF_UNIX) as successor:
        path.unlink()
        successor.bind(str(path))
        successor.listen()
        manager.stop()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert sockets(kubelet.directory) == [path.name]


def test_stale_socket_is_replaced_and_another_file_is_not(kubelet, fast):
    stale_socket(kubelet.directory / "vendor.com_gpu")
    (kubelet.directory / "vendor.com_nic").write_text("no socket")
    with manager_of(kubelet.directory, fast, gpu=Gpus(), nic=Gpus()):
        assert kubelet.plugin("vendor.com/gpu").request.endpoint == "vendor.com_gpu"
        assert kubelet.plugin("vendor.com/nic").request.endpoint != "vendor.com_nic"
    assert (kubelet.directory / "vendor.com_nic").read_text() == "no socket"


def test_every_socket_can_be_unique(kubelet, directory):
    with manager_of(directory, PluginSettings(unique_socket=True, stop_grace=0.2)):
        assert kubelet.plugin().request.endpoint.startswith("vendor.com_gpu-")


def test_burst_is_sent_as_its_last_state_and_only_once(kubelet, directory):
    plugin = Gpus()
    settings = PluginSettings(list_interval=0.2, stop_grace=0.2)
    with manager_of(directory, settings, gpu=plugin):
        connection = kubelet.plugin()
        for turn in range(1000):
            plugin.update([f"gpu-{turn}"])
        kubelet.wait_devices({"gpu-999": "Healthy"})
        sent = len(connection.lists)
        assert sent < 100
        plugin.update(["gpu-999"])
        plugin.update(["a", "b"])
        kubelet.wait_devices({"a": "Healthy", "b": "Healthy"})
        assert len(connection.lists) == sent + 1


def test_each_stream_gets_every_state_and_ends_alone(kubelet, fast):
    plugin = Gpus()
    with manager_of(kubelet.directory, fast, gpu=plugin) as manager:
        connection = kubelet.plugin()
        second = connection.stub.ListAndWatch(dp.Empty())
        assert len(next(second).devices) == 2
        second.cancel()
        plugin.update(["gpu-5"])
        kubelet.wait_devices({"gpu-5": "Healthy"})
        assert eventually(lambda: manager.resources()[0].streams == 1, TIMEOUT)
        assert len(kubelet.requests) == 1


def test_streams_beyond_the_limit_end_the_oldest(kubelet, directory):
    settings = PluginSettings(max_streams=2, workers=3, stop_grace=0.2)
    with manager_of(directory, settings):
        connection = kubelet.plugin()
        streams = [connection.stub.ListAndWatch(dp.Empty()) for _ in range(4)]
        assert len(next(streams[-1]).devices) == 2
        kubelet.wait(lambda _k: connection.ended, "the end of the oldest stream")
        assert connection.allocate(["gpu-0"]).container_responses
        for stream in streams:
            stream.cancel()


def test_rejected_allocation_is_followed_by_the_list(kubelet, fast):
    with manager_of(kubelet.directory, fast):
        connection = kubelet.plugin()
        with pytest.raises(grpc.RpcError) as error:
            connection.allocate(["gpu-0"], ["gpu-9"])
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        assert error.value.details() == "unknown device gpu-9"
        kubelet.wait(lambda _k: len(connection.lists) == 2, "the list again")
        assert connection.lists[0] == connection.lists[1]


def test_eight_concurrent_allocations_while_lists_change(kubelet, fast):
    plugin = Gpus()
    together = threading.Barrier(8)
    allocate = plugin.allocate

    def all_at_once(device_ids):
        together.wait(TIMEOUT)
        return allocate(device_ids)

    plugin.allocate = all_at_once
    with manager_of(kubelet.directory, fast, gpu=plugin):
        connection = kubelet.plugin()
        request = dp.AllocateRequest(
            container_requests=[dp.ContainerAllocateRequest(devices_ids=["gpu-0"])]
        )
        calls = [connection.stub.Allocate.future(request, timeout=TIMEOUT) for _ in range(8)]
        for turn in range(50):
            plugin.update(["gpu-0", f"gpu-{turn}"])
        assert all(call.result().container_responses for call in calls)


def test_generator_sends_changes_and_is_closed_at_the_end(kubelet, fast):
    closed = threading.Event()
    lists = [["a"], ["a", "b"], []]
    steps = threading.Semaphore(1)

    class Changing(Gpus):
        def devices(self):
            try:
                for devices in lists:
                    steps.acquire()
                    yield devices
                self.stopping.wait()
            finally:
                closed.set()

    with manager_of(kubelet.directory, fast, gpu=Changing()):
        for devices in lists:
            kubelet.wait_devices(dict.fromkeys(devices, "Healthy"))
            steps.release()
    assert closed.wait(TIMEOUT)


def test_failing_devices_method_is_called_again(kubelet, fast, caplog):
    attempts = []

    class Flaky(Gpus):
        def devices(self):
            attempts.append(1)
            if len(attempts) < 3:
                raise OSError("the driver is not loaded")
            return super().devices()

    with manager_of(kubelet.directory, fast, gpu=Flaky()):
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    line = f"{GPU}: devices() failed: OSError: the driver is not loaded; retrying in 0 s"
    assert [(e.getMessage(), e.exc_info) for e in errors] == [(line, None)] * 2


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "invalid list None: expected a list"),
        ([5], "invalid device 5: expected a Device or an ID"),
    ],
)
def test_invalid_device_list_is_logged_in_one_line(directory, fast, records, returned, text):
    class Wrong(Gpus):
        def devices(self):
            return returned

    with manager_of(directory, fast, gpu=Wrong()):
        first = records("devices() failed")
        second = records("traceback of")
    assert first.getMessage().startswith(f"{GPU}: devices() failed: TypeError: {text}")
    assert (first.levelno, first.exc_info) == (logging.ERROR, None)
    # The queue's handler has added the traceback to the text.
    assert second.levelno == logging.DEBUG and "Traceback" in second.getMessage()


@pytest.mark.parametrize("end", [SystemExit(3), pytest.fail.Exception("3 != 4")])
def test_hooks_that_raise_base_exceptions_are_logged_and_retried(kubelet, fast, caplog, end):
    """Such an exception would end its thread, and SystemExit would do so silently."""
    calls = []

    class Ending(Gpus):
        def start(self):
            self.end("start")

        def devices(self):
            self.end("devices")
            return super().devices()

        def allocate(self, device_ids):
            raise end

        def stop(self):
            raise end

        def end(self, call):
            calls.append(call)
            if calls.count(call) == 1:
                raise end

    with manager_of(kubelet.directory, fast, gpu=Ending()):
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})
        with pytest.raises(grpc.RpcError) as failed:
            kubelet.plugin().allocate(["gpu-0"])
        assert failed.value.code() is grpc.StatusCode.UNKNOWN
        assert failed.value.details() == f"{type(end).__name__}: {end}"
    assert calls == ["start", "start", "devices", "devices"]
    for line in ("start() failed", f"devices() failed: {type(end).__name__}", "stop() failed"):
        assert line in caplog.text


def test_iterator_without_a_list_is_logged(kubelet, fast, records):
    class Silent(Gpus):
        def devices(self):
            yield from ()

    with manager_of(kubelet.directory, fast, gpu=Silent()):
        assert records("devices() ended").getMessage() == f"{GPU}: devices() ended without a list"


def test_list_of_none_is_an_error(kubelet, fast, records):
    class Forgetful(Gpus):
        def devices(self):
            yield None

    with manager_of(kubelet.directory, fast, gpu=Forgetful()):
        text = records("devices() failed").getMessage()
        assert text.startswith(f"{GPU}: devices() failed: TypeError: invalid list None")


def test_invalid_names_of_discover_do_not_affect_others(kubelet, fast, records):
    class Odd(Lister):
        namespace = "vendor.com"

        def discover(self):
            yield [None, "", "a/b", "no-plugin", "raises", "gpu"]

        def new_plugin(self, last_name):
            if last_name == "raises":
                raise SystemExit(3)
            return None if last_name == "no-plugin" else Gpus()

    with Manager(Odd(), kubelet.directory, fast) as manager:
        assert records("None").getMessage() == (
            "vendor.com: discover() listed None, which is not a string: skipped"
        )
        for name in ("vendor.com/", "vendor.com/a/b"):
            text = records("invalid resource").getMessage()
            assert text.startswith(f"invalid resource name {name!r}: ") and text.endswith("skipped")
        expected = "vendor.com/no-plugin: new_plugin() returned None, which is not a Plugin"
        assert records("no-plugin").getMessage().startswith(expected)
        records("vendor.com/raises: new_plugin() failed")
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})
        assert [status.name for status in manager.resources()] == [GPU]


@pytest.mark.parametrize(
    ("namespace", "reason"),
    [
        ("gpu/x", "more than one '/'"),
        ("Vendor.com", "not a DNS domain"),
        ("", "not a DNS domain"),
        ("mykubernetes.io", "reserved for Kubernetes"),
        ("requests.vendor.com", "it starts with requests."),
        (None, "invalid namespace None: use a domain such as vendor.com"),
    ],
)
def test_invalid_namespace_is_rejected_at_once(directory, namespace, reason):
    class Own(Lister):
        def discover(self):
            return []

        def new_plugin(self, last_name):
            return Gpus()

    Own.namespace = namespace
    with pytest.raises(ConfigurationError, match=reason):
        StaticLister(namespace, {"gpu": Gpus()})
    with pytest.raises(ConfigurationError, match=reason):
        StaticLister(namespace, {})
    with pytest.raises(ConfigurationError, match=reason):
        Manager(Own(), directory)


def test_namespace_without_a_dot_is_a_warning(directory, caplog):
    Manager(StaticLister("gpu", {"x": Gpus()}), directory)
    assert caplog.messages == ["namespace 'gpu' is not a domain such as vendor.com"]


def test_forked_child_can_neither_stop_nor_use_the_plugin(kubelet, fast):
    plugin = Gpus()
    with manager_of(kubelet.directory, fast, gpu=plugin) as manager:
        kubelet.plugin()
        child = os.fork()
        if not child:
            manager.stop()
            if plugin.stopping.is_set():
                os._exit(2)
            for use in (manager.start, manager.resources, lambda: plugin.update(["gpu-9"])):
                try:
                    use()
                except PluginError as error:
                    if "fork" in str(error):
                        continue
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        assert sockets(kubelet.directory) == ["vendor.com_gpu"]
        kubelet.restart()
        kubelet.plugin()
        kubelet.wait_devices({"gpu-0": "Healthy", "gpu-1": "Healthy"})


def test_without_a_first_list_an_empty_one_is_served(kubelet, directory):
    go = threading.Event()

    class Slow(Gpus):
        def devices(self):
            go.wait(TIMEOUT)
            return ["late"]

    settings = PluginSettings(first_list_wait=0.05, stop_grace=0.2)
    with manager_of(directory, settings, gpu=Slow()):
        assert kubelet.plugin().devices == {}
        go.set()
        kubelet.wait_devices({"late": "Healthy"})


def test_failing_start_is_retried_and_affects_only_its_resource(kubelet, fast, caplog):
    class Broken(Gpus):
        attempts = 0

        def start(self):
            self.attempts += 1
            raise OSError("no driver")

    class Late(Gpus):
        attempts = 0

        def start(self):
            self.attempts += 1
            if self.attempts < 3:
                raise OSError("not yet")

        def stop(self):
            raise OSError("stuck")

    broken, late = Broken(), Late()
    with manager_of(kubelet.directory, fast, gpu=Gpus(), broken=broken, late=late) as manager:
        kubelet.plugin("vendor.com/gpu")
        kubelet.plugin("vendor.com/late")

        def state():
            return {r.name: r.state for r in manager.resources()}["vendor.com/broken"]

        end = time.monotonic() + TIMEOUT
        while state() is ResourceState.STARTING:  # its last attempt can be the last event of all
            assert time.monotonic() < end
            time.sleep(0.01)
        assert state() is ResourceState.FAILED
    assert (broken.attempts, late.attempts) == (3, 3)
    assert "vendor.com/late: stop() failed" in caplog.text


class Colours(Lister):
    """A lister whose lists the test provides."""

    namespace = "color.example.com"

    def __init__(self):
        self.lists = []
        self.changed = threading.Condition()
        self.stopped = []

    def announce(self, *names):
        with self.changed:
            self.lists.append(names)
            self.changed.notify()

    def discover(self):
        while not self.stopping.is_set():
            with self.changed:
                self.changed.wait_for(lambda: self.lists, 0.05)
                names = self.lists.pop(0) if self.lists else None
            if names is not None:
                yield names

    def new_plugin(self, last_name):
        if last_name == "unmixable":
            raise ValueError("no such colour")
        lister = self

        class Colour(Gpus):
            def stop(self):
                lister.stopped.append(last_name)

        return Colour()


def test_resources_start_and_stop_with_the_lists(kubelet, fast, caplog):
    lister = Colours()
    with Manager(lister, kubelet.directory, fast) as manager:
        lister.announce("red", "blue", "unmixable", "in valid")
        red = kubelet.plugin("color.example.com/red")
        blue = kubelet.plugin("color.example.com/blue")
        lister.announce("blue", "green")
        kubelet.plugin("color.example.com/green")
        kubelet.wait(lambda _k: red.ended, "the end of red")
        assert eventually(lambda: lister.stopped == ["red"], TIMEOUT)
        names = [r.name for r in manager.resources()]
        assert names == ["color.example.com/blue", "color.example.com/green"]
        assert not blue.ended
        lister.announce("red")
        kubelet.wait(lambda k: sum("red" in r.resource_name for r in k.requests) == 2)
    assert sorted(lister.stopped) == ["blue", "green", "red", "red"]
    assert "no such colour" in caplog.text
    assert sockets(kubelet.directory) == []


def test_stop_waits_for_resources_that_are_still_stopping(kubelet, fast):
    lister = Colours()
    leaving, go = threading.Event(), threading.Event()

    class Lingering(Gpus):
        def stop(self):
            leaving.set()
            go.wait(TIMEOUT)
            lister.stopped.append("red")

    lister.new_plugin = lambda _last_name: Lingering()
    manager = Manager(lister, kubelet.directory, fast)
    manager.start()
    lister.announce("red")
    kubelet.plugin("color.example.com/red")
    lister.announce()
    assert leaving.wait(TIMEOUT)
    stopping = threading.Thread(target=manager.stop)
    stopping.start()
    assert lister.stopping.wait(TIMEOUT)
    go.set()
    stopping.join(TIMEOUT)
    assert lister.stopped == ["red"]


def test_fifty_resources_share_a_manager(kubelet, fast):
    plugins = {f"gpu-{i:02}": Gpus() for i in range(50)}
    with manager_of(kubelet.directory, fast, **plugins) as manager:
        assert manager.wait_registered(TIMEOUT, streaming=True)
        assert len({r.endpoint for r in kubelet.requests}) == 50
    assert sockets(kubelet.directory) == []


def test_invalid_arguments_raise_configuration_error(directory):
    with pytest.raises(ConfigurationError, match="it has no domain"):
        serve(Gpus(), "gpu", directory)
    with pytest.raises(ConfigurationError, match="too long for unix sockets"):
        Manager(StaticLister("vendor.com", {}), directory / ("x" * 90))


def test_start_that_outlasts_the_manager_is_followed_by_stop(directory, fast):
    calls = []
    starting = threading.Event()

    class Slow(Gpus):
        def start(self):
            starting.set()
            assert self.stopping.wait(TIMEOUT)
            calls.append("start")

        def devices(self):
            calls.append("devices")
            return super().devices()

        def stop(self):
            calls.append("stop")

    with manager_of(directory, fast, gpu=Slow()) as manager:
        assert starting.wait(TIMEOUT)
    assert calls == ["start", "stop"]
    assert [r.state for r in manager.resources()] == [ResourceState.STOPPED]


def test_class_instead_of_an_instance_is_a_type_error():
    with pytest.raises(TypeError, match=r"^expected a plugin, not a class: use Gpus\(\)$"):
        serve(Gpus, GPU)
    with pytest.raises(TypeError, match=r"^expected a plugin, not a class: use Gpus\(\)$"):
        StaticLister("vendor.com", {"gpu": Gpus})
    with pytest.raises(TypeError, match=r"^expected a lister, not a class: use StaticLister\(\)$"):
        Manager(StaticLister)


def test_plugin_instead_of_plugins_by_name_is_a_type_error():
    with pytest.raises(
        TypeError,
        match=r"^expected a mapping from resource names .*, as in {'gpu': …}, not <",
    ):
        StaticLister("vendor.com", Gpus())
    with pytest.raises(TypeError, match=r"^expected a plugin, not 'gpu'$"):
        serve("gpu", GPU)


def test_unusable_directory_raises_configuration_error(directory, fast, monkeypatch):
    file = directory / "file"
    file.touch()
    with pytest.raises(
        ConfigurationError, match=rf"^plugin directory {file} is not a directory: set"
    ):
        serve(Gpus(), GPU, file, fast)
    # Not with real permissions, because tests can run as root.
    monkeypatch.setattr("devicemanager.plugin.common.sockets.os.access", lambda *_: False)
    with pytest.raises(
        ConfigurationError, match=rf"^plugin directory {directory} cannot be written to"
    ):
        manager_of(directory, fast).start()


def test_first_wait_for_a_kubelet_is_a_warning(directory, fast, records):
    """Unconfigured logging shows warnings only, and repeated warnings would be noise."""
    socket_path = directory / "kubelet.sock"
    waiting = f"{GPU}: waiting for a kubelet: there is no {socket_path}"
    with manager_of(directory, fast) as manager:
        assert records(waiting).levelname == "WARNING"
        with StubKubelet(directory):
            assert manager.wait_registered(TIMEOUT, streaming=True)
        socket_path.unlink(missing_ok=True)
        assert records(waiting).levelname == "INFO"


def test_stopping_while_a_resource_starts_is_safe(directory, fast, monkeypatch):
    """Here the stop comes between the creation of a resource and the start of its thread."""
    manager = manager_of(directory, fast)
    stopped = threading.Event()
    failures = []

    def stop():
        try:
            manager.stop()
        except BaseException as error:
            failures.append(error)
        stopped.set()

    start = Resource.start

    def start_late(resource):
        stopper = threading.Thread(target=stop, daemon=True)
        stopper.start()
        # A stop that does not wait for this thread has returned or failed by then.
        stopped.wait(0.2)
        start(resource)

    monkeypatch.setattr(Resource, "start", start_late)
    manager.start()
    assert stopped.wait(TIMEOUT)
    assert failures == []


def test_static_resources_exist_after_start(directory, fast):
    with manager_of(directory, fast, gpu=Gpus(), nic=Gpus()) as manager:
        assert [status.name for status in manager.resources()] == [GPU, "vendor.com/nic"]


def test_recreated_directory_is_watched_again(directory, fast, monkeypatch):
    started = SimpleQueue()
    ensure = DirectoryWatch.ensure

    def note(watch):
        is_new = ensure(watch)
        if is_new:
            started.put(threading.current_thread().name)
        return is_new

    monkeypatch.setattr(DirectoryWatch, "ensure", note)
    with manager_of(directory, fast):
        assert started.get(timeout=TIMEOUT) == "MainThread"
        directory.rmdir()
        directory.mkdir()
        assert started.get(timeout=TIMEOUT) == f"resource {GPU}"


def test_no_watch_starts_after_the_manager_has_stopped(directory, fast, monkeypatch):
    """A resource can be about to read the sockets when the manager stops."""
    observing, resume = threading.Event(), threading.Event()
    started = []
    ensure = DirectoryWatch.ensure

    def step_late(resource):
        observing.set()
        assert resume.wait(TIMEOUT)
        step(resource)

    def start_watch(watch):
        started.append(threading.current_thread().name)
        return ensure(watch)

    step = Resource._step
    monkeypatch.setattr(Resource, "_step", step_late)
    monkeypatch.setattr(DirectoryWatch, "ensure", start_watch)
    stop = DirectoryWatch.stop

    def stop_and_resume(watch):
        stop(watch)
        resume.set()

    monkeypatch.setattr(DirectoryWatch, "stop", stop_and_resume)
    with manager_of(directory, fast):
        assert observing.wait(TIMEOUT)
    assert started == ["MainThread"]


def out_of_threads(monkeypatch, name, times):
    """Make the next ``times`` starts of a thread with this name fail."""
    start = threading.Thread.start
    failures = []

    def fail(thread):
        if thread.name == name and len(failures) < times:
            failures.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    return failures


def test_start_without_a_thread_leaves_nothing_behind(directory, fast, monkeypatch):
    manager = manager_of(directory, fast, cpu=Gpus(), gpu=Gpus())
    before = Residue.now()
    out_of_threads(monkeypatch, f"resource {GPU}", 1)
    with pytest.raises(RuntimeError, match="new thread"):
        manager.start()
    assert_back_to(before)
    manager.stop()


def test_resource_without_a_thread_is_started_later(kubelet, fast, monkeypatch):
    class Own(Lister):
        namespace = "vendor.com"

        def discover(self):
            return ["gpu"]

        def new_plugin(self, last_name):
            return Gpus()

    failures = out_of_threads(monkeypatch, f"resource {GPU}", 1)
    with Manager(Own(), kubelet.directory, fast) as manager:
        assert manager.wait_registered(TIMEOUT)
    assert len(failures) == 1


def test_run_ends_if_no_resource_can_be_started(directory, fast):
    class Broken(Gpus):
        def start(self):
            raise OSError("no driver")

    class WithoutPlugin(Lister):
        namespace = "vendor.com"

        def discover(self):
            return ["gpu"]

        def new_plugin(self, last_name):
            return None

    with pytest.raises(PluginError, match=r"^no resource could be started"):
        serve(Broken(), GPU, directory, fast)
    with pytest.raises(PluginError, match=r"^no resource could be started"):
        Manager(WithoutPlugin(), directory, fast).run()


def stale_socket(path):
    """Create a socket that no process listens on, as a killed process leaves behind."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
