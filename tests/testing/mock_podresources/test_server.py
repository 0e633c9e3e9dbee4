"""The mock PodResources server: steps, changes by a test, faults, and a stopped server."""

import threading

import pytest

from devicemanager import ManualClock
from devicemanager.core.errors import RequestError
from devicemanager.testing.mock_podresources import MockPodResources, Script, Step
from podresources import (
    Allocatable,
    CallFailed,
    Container,
    ContainerDevices,
    MethodUnavailable,
    NotServing,
    Pod,
    PodNotFound,
    PodResourcesClient,
    PodResourcesError,
    RateLimited,
    SocketNotFound,
)

GPU = "vendor.com/gpu"


def pod(name, *ids, **fields):
    devices = (ContainerDevices(GPU, ids),) if ids else ()
    return Pod(name, "default", (Container("c", devices),), **fields)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def serve(pod_resources_server, clock):
    """Function that starts a server with fields of a script and returns it with a client."""
    clients = []

    def start(**fields):
        server = pod_resources_server(Script(**{"qps": None, **fields}), clock=clock)
        clients.append(PodResourcesClient(server.socket_path))
        return server, clients[-1]

    yield start
    for client in clients:
        client.close()


def names(client):
    return [each.name for each in client.list()]


def test_steps_are_applied_when_due(serve, clock):
    more = Allocatable((ContainerDevices(GPU, ("g-0",)),))
    steps = (
        Step(set_pods=(pod("a", "g-0"), pod("b"))),
        Step(after=10, delete_pods=(("default", "b"), ("no", "such"))),
        Step(after=5, set_pods=(pod("a", "g-1"),), allocatable=more),
        Step(after=5, pods=(pod("z"),)),
    )
    server, client = serve(pods=(pod("b", "g-9"),), steps=steps)
    clock.advance(0)
    assert client.list() == (pod("a", "g-0"), pod("b"))
    clock.advance(9)
    assert server.steps == 1
    clock.advance(1)
    assert client.list() == (pod("a", "g-0"),)
    assert client.get_allocatable() == Allocatable()
    clock.advance(5)
    assert client.list() == (pod("a", "g-1"),)
    assert client.get_allocatable() == more
    clock.advance(1000)
    assert names(client) == ["z"] and server.steps == 4


def test_start_and_steps_are_reported(clock, tmp_path):
    script = Script(pods=(pod("a"),), steps=(Step(after=1, set_pods=(pod("b"),)), Step(pods=())))
    lines = []
    with MockPodResources(script, tmp_path / "s", clock=clock, report=lines.append):
        assert lines == [f"pod resources socket: {tmp_path}/s", "ready: 1 pod, 2 steps"]
        clock.advance(1)
    assert lines[2:] == ["step 1: 2 pods", "step 2: 0 pods"]


def test_steps_repeat(serve, clock):
    steps = (
        Step(after=1, set_pods=(pod("a"),)),
        Step(after=2, delete_pods=(("default", "a"),)),
    )
    server, client = serve(steps=steps, repeat=True)
    listed = []
    for _ in range(7):
        listed.append(names(client))
        clock.advance(1)
    assert listed == [[], ["a"], ["a"], [], ["a"], ["a"], []]
    server.stop()
    clock.advance(100)
    assert server.steps == 5


def test_content_can_be_changed_by_a_test(serve):
    server, client = serve()
    server.set_pods(pod("b"), pod("a", "g-0"))
    assert names(client) == ["a", "b"]
    assert client.get("a") == pod("a", "g-0")
    server.delete_pods("b", "default/none")
    assert names(client) == ["a"]
    server.replace(pods=[pod("c")])
    assert names(client) == ["c"]
    server.replace(allocatable=Allocatable(cpu_ids=(1,)))
    assert client.get_allocatable().cpu_ids == (1,) and names(client) == ["c"]
    with pytest.raises(PodNotFound):
        client.get("a")
    counts = server.counters()
    assert counts["kubelet_pod_resources_endpoint_requests_get", "v1"] == 2


def test_changed_pod_keeps_other_pods_with_equal_names(serve):
    finished, running = pod("a", active=False), pod("a", "g-0")
    server, _ = serve(pods=(finished, running, pod("b")))
    server.set_pods(pod("c"))
    assert server.source.pods() == (finished, running, pod("b"), pod("c"))
    server.delete_pods("b")
    assert server.source.pods() == (finished, running, pod("c"))
    server.set_pods(pod("a", "g-1"))
    assert server.source.pods() == (pod("a", "g-1"), pod("c"))
    server.set_pods(finished, running)
    server.delete_pods("a")
    assert server.source.pods() == (pod("c"),)


def test_server_can_be_paused_and_resumed(serve, clock):
    server, client = serve(pods=(pod("a"),), steps=(Step(after=1, serving=False),))
    assert names(client) == ["a"]
    clock.advance(1)
    assert not server.socket_path.exists()
    with pytest.raises((SocketNotFound, NotServing)):
        client.list()
    server.pause_serving()  # no effect: it does not serve
    server.resume_serving()
    server.resume_serving()
    assert names(client) == ["a"]


def test_faults_of_a_script_and_of_a_test(serve, clock):
    from devicemanager.faults import Fault

    fault = Fault.parse("fail-pod-resources:method=List,code=INTERNAL,text=no,times=1")
    server, client = serve(
        pods=(pod("a"),),
        faults=(fault,),
        steps=(
            Step(after=1, faults=(Fault.parse("stale-pod-resources"),)),
            Step(after=1, pods=(pod("b"),)),
            Step(after=1, clear_faults=True),
        ),
    )
    assert client.get_allocatable() == Allocatable()
    with pytest.raises(CallFailed, match="INTERNAL: no"):
        client.list()
    assert names(client) == ["a"]
    clock.advance(2)
    assert names(client) == ["a"]  # stale
    clock.advance(1)
    assert names(client) == ["b"]
    server.faults.set("limit-pod-resources:times=1")
    with pytest.raises(RateLimited):
        client.list()


@pytest.mark.parametrize("line", ["restart", "restart:at=Allocate"])
def test_faults_of_a_kubelet_are_rejected(serve, line):
    server, _ = serve()
    with pytest.raises(RequestError, match=r"^fault restart needs a kubelet: .* of pod-resources$"):
        server.faults.set(line)
    assert server.faults.list() == ()


@pytest.fixture
def delayed(serve, clock, monkeypatch):
    """A server, and a thread whose List call is delayed for 30 s."""
    server, client = serve(pods=(pod("a"),))
    server.faults.set("delay-pod-resources:seconds=30,times=1")
    is_delayed, call_at, responses = threading.Event(), clock.call_at, []

    def notice(when, callback):
        cancel = call_at(when, callback)
        is_delayed.set()
        return cancel

    def list_pods():
        try:
            responses.append(names(client))
        except PodResourcesError as error:
            responses.append(error)

    monkeypatch.setattr(clock, "call_at", notice)
    thread = threading.Thread(target=list_pods)
    thread.start()
    assert is_delayed.wait(10)
    yield server, thread, responses
    server.stop()
    thread.join(10)


def test_delayed_response_waits_for_the_clock(delayed, clock):
    _, thread, responses = delayed
    clock.advance(29)
    assert thread.is_alive() and responses == []
    clock.advance(1)
    thread.join(10)
    assert responses == [["a"]]


def test_delayed_call_does_not_block_other_calls(delayed):
    server, thread, _ = delayed
    with PodResourcesClient(server.socket_path) as client:
        assert names(client) == ["a"]
    assert thread.is_alive()


def test_stop_releases_delayed_calls(delayed):
    server, thread, responses = delayed
    server.stop()
    thread.join(10)
    assert len(responses) == 1


def test_rate_limit_uses_the_clock(serve, clock):
    _, client = serve(qps=1.0, burst=2)
    client.list()
    client.get_allocatable()
    with pytest.raises(RateLimited):
        client.list()
    clock.advance(1)
    client.list()


def test_older_version_has_fewer_methods_and_pods(serve):
    inactive = pod("done", active=False)
    _, new = serve(pods=(pod("a"), inactive))
    _, old = serve(pods=(pod("a"),), kubelet_version="1.20")
    assert names(new) == ["a", "done"]
    assert names(old) == ["a"]
    with pytest.raises(MethodUnavailable):
        old.get("a")


def test_stop_removes_the_directory(tmp_path):
    with MockPodResources() as server:
        directory = server.socket_path.parent
        assert server.socket_path.is_socket()
    server.stop()
    assert not directory.exists()
    chosen = tmp_path / "s"
    with MockPodResources(socket_path=chosen) as server:
        assert chosen.is_socket()
    assert tmp_path.exists() and not chosen.exists()


def test_no_step_is_applied_after_stop(serve, clock):
    server, _ = serve(pods=(pod("a"),), steps=(Step(after=1, pods=()),))
    server.stop()
    assert clock._timers == []
    # A callback that has waited for the lock until the stop.
    clock.advance(1)
    server._next()
    assert server.steps == 0


def test_fixture_accepts_dicts_and_files(pod_resources_server, tmp_path):
    (tmp_path / "s.yaml").write_text("pod_resources: [{name: a}]")
    for script in ({"pod_resources": [{"name": "a"}]}, tmp_path / "s.yaml"):
        with PodResourcesClient(pod_resources_server(script).socket_path) as client:
            assert names(client) == ["a"]


def test_step_that_serves_changes_nothing_while_the_server_runs(serve):
    server, client = serve()
    server.apply(Step(serving=True))
    server.apply(Step(serving=False))
    server.apply(Step(serving=False))
    server.apply(Step(pods=(pod("a"),), serving=True))
    assert [each.name for each in client.list()] == ["a"]


class EarlyClock(ManualClock):
    """Clock that calls the first timer one second early."""

    early = 1.0

    def call_at(self, when, callback):
        when, self.early = when - self.early, 0.0
        return super().call_at(when, callback)


def test_step_is_not_applied_before_it_is_due(pod_resources_server):
    clock = EarlyClock()
    server = pod_resources_server(Script(steps=(Step(after=3.0, pods=(pod("a"),)),)), clock=clock)
    clock.advance(2.5)
    assert server.steps == 0
    clock.advance(0.5)
    assert server.steps == 1
