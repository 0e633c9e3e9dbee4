"""Device lists and the five RPCs, without a socket."""

import threading
from concurrent import futures

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.plugin import (
    ContainerSettings,
    Device,
    Plugin,
    PluginSettings,
    UnhealthyDevice,
    UnknownDevice,
)
from devicemanager.plugin.common.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.lists import DeviceList
from devicemanager.plugin.service import Service, complete_preference
from devicemanager.plugin.streams import Streams
from protos import deviceplugin_v1beta1 as dp
from tests.timing import wait_until

TIMEOUT = 15.0


class Aborted(Exception):
    pass


class FakeContext:
    """The context of a call that the test ends."""

    def __init__(self):
        self.callbacks = []

    def abort(self, code, details):
        raise Aborted(code.name, details)

    def add_callback(self, callback):
        self.callbacks.append(callback)
        return True

    def end(self):
        for callback in self.callbacks:
            callback()


class FakePlugin(Plugin):
    """Returns or raises ``result``, and records its calls."""

    def __init__(self, result=None):
        self.result = result
        self.calls = []
        self.update(["b", "a", Device("sick", healthy=False)])

    def devices(self):
        return ()

    def allocate(self, device_ids):
        self.calls.append(device_ids)
        return self.end()

    def preferred_allocation(self, available, must_include, size):
        self.calls.append((available, must_include, size))
        return self.end()

    def pre_start_container(self, device_ids):
        self.calls.append(device_ids)
        return self.end()

    def end(self):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class Plain(Plugin):
    def devices(self):
        return ()

    def allocate(self, device_ids):
        return None


def service_of(plugin, **settings):
    devices = plugin._device_list
    chosen = PluginSettings(**settings)
    return Service(plugin, chosen, Streams(chosen.max_streams, devices.notify_streams))


def allocate(service, *containers):
    request = dp.AllocateRequest(
        container_requests=[dp.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
    )
    return service.Allocate(request, FakeContext())


def test_allocate_gets_sorted_and_distinct_ids():
    plugin = FakePlugin(ContainerSettings(envs={"A": "1"}))
    response = allocate(service_of(plugin), ["b", "a", "b"], [], ["a"])
    assert plugin.calls == [("a", "b"), ("a",)]
    assert [dict(c.envs) for c in response.container_responses] == [{"A": "1"}, {}, {"A": "1"}]


def test_empty_request_has_an_empty_response():
    assert allocate(service_of(FakePlugin())) == dp.AllocateResponse()


@pytest.mark.parametrize(
    ("device_id", "status"),
    [
        ("c", ("NOT_FOUND", "unknown device c")),
        ("", ("NOT_FOUND", "unknown device ")),
        ("sick", ("FAILED_PRECONDITION", "device sick is unhealthy")),
    ],
)
def test_unknown_or_unhealthy_device_is_rejected_before_the_hook(device_id, status):
    plugin = FakePlugin()
    with pytest.raises(Aborted) as rejected:
        allocate(service_of(plugin), ["a"], ["a", device_id])
    assert rejected.value.args == status
    assert plugin.calls == []


def test_unhealthy_devices_can_be_allowed():
    plugin = FakePlugin()
    assert allocate(service_of(plugin, reject_unhealthy=False), ["sick"]).container_responses
    assert plugin.calls == [("sick",)]


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (OSError("no driver"), ("UNKNOWN", "OSError: no driver")),
        (KeyError("card0"), ("UNKNOWN", "KeyError: 'card0'")),
        (KeyError(), ("UNKNOWN", "KeyError")),
        (UnknownDevice("gone just now"), ("NOT_FOUND", "gone just now")),
        (UnhealthyDevice("too hot"), ("FAILED_PRECONDITION", "too hot")),
        (SystemExit(3), ("UNKNOWN", "SystemExit: 3")),
        (KeyboardInterrupt(), ("UNKNOWN", "KeyboardInterrupt")),
        (pytest.fail.Exception("3 != 4"), ("UNKNOWN", "Failed: 3 != 4")),
        ({"A": "1"}, ("UNKNOWN", "TypeError: allocate returned {'A': '1'}: return ")),
    ],
)
def test_error_of_the_hook_becomes_the_status(result, status, caplog):
    with pytest.raises(Aborted) as failed:
        allocate(service_of(FakePlugin(result)), ["a"])
    code, text = failed.value.args
    assert code == status[0] and text.startswith(status[1])
    assert caplog.text.startswith(("ERROR", "WARNING"))


def prefer(service):
    request = dp.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs="ab", allocation_size=1)
    return service.GetPreferredAllocation(request, FakeContext())


def pre_start(service):
    request = dp.PreStartContainerRequest(devices_ids="a")
    return service.PreStartContainer(request, FakeContext())


@pytest.mark.parametrize("call", [prefer, pre_start])
@pytest.mark.parametrize(
    ("result", "text"),
    [
        (OSError("no driver"), "OSError: no driver"),
        (SystemExit(3), "SystemExit: 3"),
        (pytest.skip.Exception("not today"), "Skipped: not today"),
    ],
)
def test_error_of_an_optional_hook_becomes_the_status(call, result, text, caplog):
    with pytest.raises(Aborted) as failed:
        call(service_of(FakePlugin(result)))
    assert failed.value.args == ("UNKNOWN", text)
    assert "failed in the code of the plugin's author" in caplog.text


@pytest.mark.parametrize("result", [None, "ab", [1], 7])
def test_invalid_preference_is_an_error(result):
    with pytest.raises(Aborted) as failed:
        prefer(service_of(FakePlugin(result)))
    expected = f"TypeError: preferred_allocation returned {result!r}: return a list of device IDs"
    assert failed.value.args == ("UNKNOWN", expected)


def test_calls_that_are_not_offered_are_unimplemented():
    service = service_of(Plain())
    assert service.options() == dp.DevicePluginOptions()
    for call, request in [
        (service.GetPreferredAllocation, dp.PreferredAllocationRequest()),
        (service.PreStartContainer, dp.PreStartContainerRequest()),
    ]:
        with pytest.raises(Aborted, match="UNIMPLEMENTED"):
            call(request, FakeContext())


def test_pre_start_accepts_unhealthy_and_rejects_unknown_devices():
    plugin = FakePlugin()
    service = service_of(plugin)
    for ids in (["sick", "a"], []):
        service.PreStartContainer(dp.PreStartContainerRequest(devices_ids=ids), FakeContext())
    assert plugin.calls == [("a", "sick")]
    with pytest.raises(Aborted, match="NOT_FOUND"):
        service.PreStartContainer(dp.PreStartContainerRequest(devices_ids=["c"]), FakeContext())


def test_preference_is_requested_per_container_and_corrected():
    plugin = FakePlugin(["nonsense", "b"])
    request = dp.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs="cab", allocation_size=2)
    request.container_requests.add(
        available_deviceIDs="ab", must_include_deviceIDs="a", allocation_size=1
    )
    response = service_of(plugin).GetPreferredAllocation(request, FakeContext())
    assert [list(c.deviceIDs) for c in response.container_responses] == [["b", "a"], ["a"]]
    # In the second container, the required device leaves no choice.
    assert plugin.calls == [(("a", "b", "c"), (), 2)]


ids = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@given(chosen=ids, available=ids, must=ids, size=st.integers(-2, 10))
def test_completed_preference_is_always_valid(chosen, available, must, size):
    result = complete_preference(chosen, available, must, size)
    among = set(available)
    assert len(result) == len(set(result)) == min(max(size, 0), len(among))
    assert set(result) <= among
    if len(set(must) & among) <= size:
        assert set(must) & among <= set(result)
    good = [c for c in dict.fromkeys(chosen) if c in among and c not in must]
    room = max(len(result) - len(set(must) & among), 0)
    assert set(good[:room]) <= set(result)


def test_equal_list_is_not_a_change():
    devices = DeviceList()
    assert devices.publish([])
    assert not devices.publish([])
    assert devices.publish(["a", Device("b")])
    assert not devices.publish([Device("b"), "a", "a"])
    assert devices.publish([Device("b", healthy=False), "a"])


def test_invalid_device_is_rejected_and_the_list_stays():
    devices = DeviceList()
    devices.publish(["a"])
    with pytest.raises(TypeError, match=r"^invalid device 7: expected a Device or an ID"):
        devices.publish(["b", 7])
    assert list(devices.current.devices) == ["a"]


def test_problems_of_a_list_are_logged(caplog):
    DeviceList().publish(["a" * 64, "b", "b"])
    assert "is listed twice" in caplog.text and "longer than 63" in caplog.text
    DeviceList().publish([f"{i:01000}" for i in range(4_200)])
    assert "the kubelet's limit is 4194304" in caplog.text


def listen(service, context):
    """Read the lists of one stream on a thread."""
    lists = []
    arrived = threading.Condition()

    def read():
        for payload in service.ListAndWatch(dp.Empty(), context):
            with arrived:
                lists.append({d.ID for d in dp.ListAndWatchResponse.FromString(payload).devices})
                arrived.notify_all()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def wait_for(expected):
        with arrived:
            assert arrived.wait_for(lambda: lists and lists[-1] == expected, TIMEOUT), lists

    return wait_for, lists, thread


def test_ended_stream_takes_no_update_from_others():
    plugin = FakePlugin()
    service = service_of(plugin, list_interval=0)
    dead, living = FakeContext(), FakeContext()
    wait_dead, _, dead_thread = listen(service, dead)
    wait_living, _, living_thread = listen(service, living)
    wait_dead({"a", "b", "sick"})
    dead.end()
    dead_thread.join(TIMEOUT)
    assert not dead_thread.is_alive()
    plugin.update(["c"])
    wait_living({"c"})
    assert service.streams.counts.open == 1
    living.end()
    living_thread.join(TIMEOUT)
    assert service.streams.counts.open == 0


def test_slow_reader_gets_only_the_newest_state():
    plugin = FakePlugin()
    stream = service_of(plugin, list_interval=0).ListAndWatch(dp.Empty(), FakeContext())
    next(stream)
    for turn in range(1000):
        plugin.update([f"gpu-{turn}"])
    (device,) = dp.ListAndWatchResponse.FromString(next(stream)).devices
    assert device.ID == "gpu-999"


def test_reverted_change_is_not_sent():
    plugin = FakePlugin()
    plugin.update(["a"])
    devices = plugin._device_list
    stream = service_of(plugin, list_interval=0).ListAndWatch(dp.Empty(), FakeContext())
    next(stream)
    plugin.update(["b"])
    plugin.update(["a"])
    wait_newer, waits = devices.wait_newer, []

    def wait_and_change(version, ended):
        waits.append(version)
        if len(waits) == 2:
            plugin.update(["c"])
        return wait_newer(version, ended)

    devices.wait_newer = wait_and_change
    (device,) = dp.ListAndWatchResponse.FromString(next(stream)).devices
    assert device.ID == "c"


def test_resend_sends_the_same_list_again():
    plugin = FakePlugin()
    stream = service_of(plugin, list_interval=0).ListAndWatch(dp.Empty(), FakeContext())
    first = next(stream)
    plugin._device_list.resend()
    assert next(stream) == first


def test_stream_pauses_after_each_list():
    plugin = FakePlugin()
    pauses = []
    plugin._device_list.pause = lambda seconds, _ended: pauses.append(seconds)
    stream = service_of(plugin, list_interval=0.3).ListAndWatch(dp.Empty(), FakeContext())
    next(stream)
    plugin.update(["c"])
    next(stream)
    assert pauses == [0.3]


def test_cancelled_call_gets_no_list():
    context = FakeContext()
    context.add_callback = lambda _callback: False
    assert list(service_of(FakePlugin()).ListAndWatch(dp.Empty(), context)) == []


def test_pool_is_bounded_and_passes_errors_on():
    pool = DaemonThreadPoolExecutor(3, "test")
    gate = threading.Event()
    running = threading.Semaphore(0)

    def work(value):
        running.release()
        gate.wait(TIMEOUT)
        return value

    jobs = [pool.submit(work, value) for value in range(10)]
    for _ in range(3):
        assert running.acquire(timeout=TIMEOUT)
    workers = [t for t in threading.enumerate() if t.name == "test"]
    assert len(workers) == 3 and all(t.daemon for t in workers)
    gate.set()
    assert [job.result(TIMEOUT) for job in jobs] == list(range(10))
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(TIMEOUT)
    pool.close()
    for worker in workers:
        worker.join(TIMEOUT)
        assert not worker.is_alive()
    assert isinstance(pool.submit(int), futures.Future)


def test_idle_thread_of_the_pool_runs_the_next_call(monkeypatch):
    monkeypatch.setattr("devicemanager.plugin.common.executor._IDLE", TIMEOUT)
    pool = DaemonThreadPoolExecutor(2, "test")
    first = pool.submit(threading.current_thread).result(TIMEOUT)
    wait_until(lambda: pool._idle, TIMEOUT)
    assert pool.submit(threading.current_thread).result(TIMEOUT) is first
    pool.close()
    first.join(TIMEOUT)
    assert not first.is_alive()


def test_pool_without_new_threads(monkeypatch):
    """A call is rejected if there is no thread for it, and accepted if there is one."""
    pool = DaemonThreadPoolExecutor(2, "test")
    made, running, gate = [], threading.Event(), threading.Event()

    def none(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError, match=r"^can't start new thread"):
            pool.submit(made.append, "rejected")
    first = pool.submit(lambda: running.set() or gate.wait(TIMEOUT))
    assert running.wait(TIMEOUT)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        later = pool.submit(made.append, "later")
    gate.set()
    assert first.result(TIMEOUT)
    later.result(TIMEOUT)
    assert made == ["later"]
    # The failed starts do not count: the pool can still start all its threads.
    both = threading.Barrier(2)
    jobs = [pool.submit(both.wait, TIMEOUT) for _ in range(2)]
    assert sorted(job.result(TIMEOUT) for job in jobs) == [0, 1]
    pool.close()
