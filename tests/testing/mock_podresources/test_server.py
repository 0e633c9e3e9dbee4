"""A scripted service: steps by the clock, changes by hand, faults, and being away."""

import threading

import pytest

from devicemanager import ManualClock
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
    """A server of these fields of a script, and a client of it."""
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


def test_steps_come_in_their_time(serve, clock):
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


def test_steps_repeat(serve, clock):
    steps = (
        Step(after=1, set_pods=(pod("a"),)),
        Step(after=2, delete_pods=(("default", "a"),)),
    )
    server, client = serve(steps=steps, repeat=True)
    seen = []
    for _ in range(7):
        seen.append(names(client))
        clock.advance(1)
    assert seen == [[], ["a"], ["a"], [], ["a"], ["a"], []]
    server.stop()
    clock.advance(100)
    assert server.steps == 5


def test_a_test_changes_it_by_hand(serve):
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


def test_a_kubelet_that_is_away_and_comes_back(serve, clock):
    server, client = serve(pods=(pod("a"),), steps=(Step(after=1, serving=False),))
    assert names(client) == ["a"]
    clock.advance(1)
    assert not server.socket_path.exists()
    with pytest.raises((SocketNotFound, NotServing)):
        client.list()
    server.pause_serving()  # already
    server.resume_serving()
    server.resume_serving()
    assert names(client) == ["a"]


def test_faults_of_a_script_and_by_hand(serve, clock):
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


@pytest.fixture
def delayed(serve, clock, monkeypatch):
    """A server, and a thread whose List is held up for 30 s."""
    server, client = serve(pods=(pod("a"),))
    server.faults.set("delay-pod-resources:seconds=30,times=1")
    held, call_at, answers = threading.Event(), clock.call_at, []

    def noticed(when, callback):
        cancel = call_at(when, callback)
        held.set()
        return cancel

    def ask():
        try:
            answers.append(names(client))
        except PodResourcesError as error:
            answers.append(error)

    monkeypatch.setattr(clock, "call_at", noticed)
    thread = threading.Thread(target=ask)
    thread.start()
    assert held.wait(10)
    yield server, thread, answers
    server.stop()
    thread.join(10)


def test_a_delayed_answer_waits_for_the_clock(delayed, clock):
    _, thread, answers = delayed
    clock.advance(29)
    assert thread.is_alive() and answers == []
    clock.advance(1)
    thread.join(10)
    assert answers == [["a"]]


def test_nobody_waits_for_a_delay_at_the_end(delayed):
    server, thread, answers = delayed
    server.stop()
    thread.join(10)
    assert len(answers) == 1


def test_the_rate_limit_is_the_kubelets_by_the_same_clock(serve, clock):
    _, client = serve(qps=1.0, burst=2)
    client.list()
    client.get_allocatable()
    with pytest.raises(RateLimited):
        client.list()
    clock.advance(1)
    client.list()


def test_an_older_kubelet_has_less(serve):
    inactive = pod("done", active=False)
    _, new = serve(pods=(pod("a"), inactive))
    _, old = serve(pods=(pod("a"),), kubelet_version="1.20")
    assert names(new) == ["a", "done"]
    assert names(old) == ["a"]
    with pytest.raises(MethodUnavailable):
        old.get("a")


def test_its_directory_goes_with_it(tmp_path):
    with MockPodResources() as server:
        directory = server.socket_path.parent
        assert server.socket_path.is_socket()
    server.stop()
    assert not directory.exists()
    chosen = tmp_path / "s"
    with MockPodResources(socket_path=chosen) as server:
        assert chosen.is_socket()
    assert tmp_path.exists() and not chosen.exists()


def test_the_fixture_takes_documents_and_files(pod_resources_server, tmp_path):
    (tmp_path / "s.yaml").write_text("pod_resources: [{name: a}]")
    for given in ({"pod_resources": [{"name": "a"}]}, tmp_path / "s.yaml"):
        with PodResourcesClient(pod_resources_server(given).socket_path) as client:
            assert names(client) == ["a"]
