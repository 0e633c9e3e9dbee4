"""Lists and the five calls, without a socket."""

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
from devicemanager.plugin.executor import DaemonThreadPoolExecutor
from devicemanager.plugin.lists import DeviceList
from devicemanager.plugin.service import Service, complete_preference
from devicemanager.plugin.streams import Streams
from protos import deviceplugin_v1beta1 as dp

PATIENCE = 15.0


class Aborted(Exception):
    pass


class FakeContext:
    """A call that the test ends when it likes."""

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


class Scripted(Plugin):
    """Answers what it was given, and keeps what it was asked."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []
        self.update(["b", "a", Device("sick", healthy=False)])

    def devices(self):
        return ()

    def allocate(self, device_ids):
        self.asked.append(device_ids)
        return self.end()

    def preferred_allocation(self, available, must_include, size):
        self.asked.append((available, must_include, size))
        return self.end()

    def pre_start_container(self, device_ids):
        self.asked.append(device_ids)
        return self.end()

    def end(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Plain(Plugin):
    def devices(self):
        return ()

    def allocate(self, device_ids):
        return None


def service_of(plugin, **settings):
    devices = plugin.device_list
    patience = PluginSettings(**settings)
    return Service(plugin, patience, Streams(patience.max_streams, devices.notify_streams))


def allocate(service, *containers):
    request = dp.AllocateRequest(
        container_requests=[dp.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
    )
    return service.Allocate(request, FakeContext())


def test_ids_reach_the_author_sorted_and_once():
    plugin = Scripted(ContainerSettings(envs={"A": "1"}))
    answer = allocate(service_of(plugin), ["b", "a", "b"], [], ["a"])
    assert plugin.asked == [("a", "b"), ("a",)]
    assert [dict(c.envs) for c in answer.container_responses] == [{"A": "1"}, {}, {"A": "1"}]


def test_an_empty_request_has_an_empty_answer():
    assert allocate(service_of(Scripted())) == dp.AllocateResponse()


@pytest.mark.parametrize(
    ("device_id", "status"),
    [
        ("c", ("NOT_FOUND", "device c is not one of this plugin's")),
        ("", ("NOT_FOUND", "device  is not one of this plugin's")),
        ("sick", ("FAILED_PRECONDITION", "device sick is unhealthy")),
    ],
)
def test_what_cannot_be_allocated_never_reaches_the_author(device_id, status):
    plugin = Scripted()
    with pytest.raises(Aborted) as rejected:
        allocate(service_of(plugin), ["a"], ["a", device_id])
    assert rejected.value.args == status
    assert plugin.asked == []


def test_unhealthy_devices_may_be_allowed():
    plugin = Scripted()
    assert allocate(service_of(plugin, reject_unhealthy=False), ["sick"]).container_responses
    assert plugin.asked == [("sick",)]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (OSError("no driver"), ("UNKNOWN", "OSError: no driver")),
        (KeyError("card0"), ("UNKNOWN", "KeyError: 'card0'")),
        (KeyError(), ("UNKNOWN", "KeyError")),
        (UnknownDevice("gone just now"), ("NOT_FOUND", "gone just now")),
        (UnhealthyDevice("too hot"), ("FAILED_PRECONDITION", "too hot")),
        (SystemExit(3), ("UNKNOWN", "SystemExit: 3")),
        (KeyboardInterrupt(), ("UNKNOWN", "KeyboardInterrupt")),
        (pytest.fail.Exception("3 != 4"), ("UNKNOWN", "Failed: 3 != 4")),
        ({"A": "1"}, ("UNKNOWN", "TypeError: allocate returned {'A': '1'}; it returns ")),
    ],
)
def test_what_the_author_raises_is_the_status(answer, status, caplog):
    with pytest.raises(Aborted) as failed:
        allocate(service_of(Scripted(answer)), ["a"])
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
    ("answer", "text"),
    [
        (OSError("no driver"), "OSError: no driver"),
        (SystemExit(3), "SystemExit: 3"),
        (pytest.skip.Exception("not today"), "Skipped: not today"),
    ],
)
def test_the_optional_calls_end_with_a_status_too(call, answer, text, caplog):
    with pytest.raises(Aborted) as failed:
        call(service_of(Scripted(answer)))
    assert failed.value.args == ("UNKNOWN", text)
    assert "failed in the plugin's own code" in caplog.text


@pytest.mark.parametrize("answer", [None, "ab", [1], 7])
def test_what_is_no_preference_is_named(answer):
    with pytest.raises(Aborted) as failed:
        prefer(service_of(Scripted(answer)))
    expected = f"TypeError: preferred_allocation returned {answer!r}; it returns device ids"
    assert failed.value.args == ("UNKNOWN", expected)


def test_calls_that_are_not_offered_are_not_implemented():
    service = service_of(Plain())
    assert service.options() == dp.DevicePluginOptions()
    for call, request in [
        (service.GetPreferredAllocation, dp.PreferredAllocationRequest()),
        (service.PreStartContainer, dp.PreStartContainerRequest()),
    ]:
        with pytest.raises(Aborted, match="UNIMPLEMENTED"):
            call(request, FakeContext())


def test_pre_start_takes_unhealthy_devices_and_rejects_unknown_ones():
    plugin = Scripted()
    service = service_of(plugin)
    for ids in (["sick", "a"], []):
        service.PreStartContainer(dp.PreStartContainerRequest(devices_ids=ids), FakeContext())
    assert plugin.asked == [("a", "sick")]
    with pytest.raises(Aborted, match="NOT_FOUND"):
        service.PreStartContainer(dp.PreStartContainerRequest(devices_ids=["c"]), FakeContext())


def test_a_preference_is_asked_per_container_and_put_right():
    plugin = Scripted(["nonsense", "b"])
    request = dp.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs="cab", allocation_size=2)
    request.container_requests.add(
        available_deviceIDs="ab", must_include_deviceIDs="a", allocation_size=1
    )
    answer = service_of(plugin).GetPreferredAllocation(request, FakeContext())
    assert [list(c.deviceIDs) for c in answer.container_responses] == [["b", "a"], ["a"]]
    # What has to be included leaves no choice in the second.
    assert plugin.asked == [(("a", "b", "c"), (), 2)]


ids = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@given(chosen=ids, available=ids, must=ids, size=st.integers(-2, 10))
def test_every_preference_is_one_a_kubelet_takes(chosen, available, must, size):
    answer = complete_preference(chosen, available, must, size)
    among = set(available)
    assert len(answer) == len(set(answer)) == min(max(size, 0), len(among))
    assert set(answer) <= among
    if len(set(must) & among) <= size:
        assert set(must) & among <= set(answer)
    good = [c for c in dict.fromkeys(chosen) if c in among and c not in must]
    room = max(len(answer) - len(set(must) & among), 0)
    assert set(good[:room]) <= set(answer)


def test_a_list_that_says_the_same_is_no_change():
    devices = DeviceList()
    assert devices.publish([])
    assert not devices.publish([])
    assert devices.publish(["a", Device("b")])
    assert not devices.publish([Device("b"), "a", "a"])
    assert devices.publish([Device("b", healthy=False), "a"])


def test_what_is_no_device_is_rejected_and_the_list_stays():
    devices = DeviceList()
    devices.publish(["a"])
    with pytest.raises(TypeError, match="holds Device values or ids, not 7"):
        devices.publish(["b", 7])
    assert list(devices.current.devices) == ["a"]


def test_odd_lists_are_told_of(caplog):
    DeviceList().publish(["a" * 64, "b", "b"])
    assert "appears twice" in caplog.text and "longer than 63" in caplog.text
    DeviceList().publish([f"{i:01000}" for i in range(4_200)])
    assert "a kubelet rejects more than 4194304" in caplog.text


def listen(service, context):
    """The lists of one stream as they come, and the thread that reads them."""
    lists = []
    came = threading.Condition()

    def read():
        for payload in service.ListAndWatch(dp.Empty(), context):
            with came:
                lists.append({d.ID for d in dp.ListAndWatchResponse.FromString(payload).devices})
                came.notify_all()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def wait_for(expected):
        with came:
            assert came.wait_for(lambda: lists and lists[-1] == expected, PATIENCE), lists

    return wait_for, lists, thread


def test_a_stream_ends_when_its_caller_goes_and_takes_nothing_with_it():
    plugin = Scripted()
    service = service_of(plugin, list_interval=0)
    dead, living = FakeContext(), FakeContext()
    wait_dead, _, dead_thread = listen(service, dead)
    wait_living, _, living_thread = listen(service, living)
    wait_dead({"a", "b", "sick"})
    dead.end()
    dead_thread.join(PATIENCE)
    assert not dead_thread.is_alive()
    plugin.update(["c"])
    wait_living({"c"})
    assert service.streams.counts.open == 1
    living.end()
    living_thread.join(PATIENCE)
    assert service.streams.counts.open == 0


def test_a_slow_reader_gets_the_newest_state_only():
    plugin = Scripted()
    stream = service_of(plugin, list_interval=0).ListAndWatch(dp.Empty(), FakeContext())
    next(stream)
    for turn in range(1000):
        plugin.update([f"gpu-{turn}"])
    (device,) = dp.ListAndWatchResponse.FromString(next(stream)).devices
    assert device.ID == "gpu-999"


def test_a_change_there_and_back_is_not_sent():
    plugin = Scripted()
    plugin.update(["a"])
    devices = plugin.device_list
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


def test_a_list_that_is_sent_again_on_purpose_is_sent():
    plugin = Scripted()
    stream = service_of(plugin, list_interval=0).ListAndWatch(dp.Empty(), FakeContext())
    first = next(stream)
    plugin.device_list.resend()
    assert next(stream) == first


def test_a_stream_pauses_after_each_list():
    plugin = Scripted()
    pauses = []
    plugin.device_list.pause = lambda seconds, _ended: pauses.append(seconds)
    stream = service_of(plugin, list_interval=0.3).ListAndWatch(dp.Empty(), FakeContext())
    next(stream)
    plugin.update(["c"])
    next(stream)
    assert pauses == [0.3]


def test_a_caller_that_is_gone_already_gets_nothing():
    context = FakeContext()
    context.add_callback = lambda _callback: False
    assert list(service_of(Scripted()).ListAndWatch(dp.Empty(), context)) == []


def test_a_pool_is_bounded_and_shows_what_was_raised():
    pool = DaemonThreadPoolExecutor(3, "test")
    gate = threading.Event()
    running = threading.Semaphore(0)

    def work(value):
        running.release()
        gate.wait(PATIENCE)
        return value

    jobs = [pool.submit(work, value) for value in range(10)]
    for _ in range(3):
        assert running.acquire(timeout=PATIENCE)
    workers = [t for t in threading.enumerate() if t.name == "test"]
    assert len(workers) == 3 and all(t.daemon for t in workers)
    gate.set()
    assert [job.result(PATIENCE) for job in jobs] == list(range(10))
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(PATIENCE)
    pool.close()
    for worker in workers:
        worker.join(PATIENCE)
        assert not worker.is_alive()
    assert isinstance(pool.submit(int), futures.Future)


def test_a_pool_whose_threads_cannot_start(monkeypatch):
    """A call that nobody would make is rejected; one that a thread is there for is made."""
    pool = DaemonThreadPoolExecutor(2, "test")
    made, running, gate = [], threading.Event(), threading.Event()

    def none(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(made.append, "rejected")
    first = pool.submit(lambda: running.set() or gate.wait(PATIENCE))
    assert running.wait(PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        later = pool.submit(made.append, "later")
    gate.set()
    assert first.result(PATIENCE)
    later.result(PATIENCE)
    assert made == ["later"]
    # As many threads as there may be can still come.
    both = threading.Barrier(2)
    jobs = [pool.submit(both.wait, PATIENCE) for _ in range(2)]
    assert sorted(job.result(PATIENCE) for job in jobs) == [0, 1]
    pool.close()
