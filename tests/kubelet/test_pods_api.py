"""The Pods API of a mock kubelet: which versions serve it, pods, events, restarts and faults."""

from __future__ import annotations

import contextlib
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.errors import RequestError, StartError
from devicemanager.events.stream import Event, EventKind
from devicemanager.io.clock import ManualClock
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import pod_manifest
from devicemanager.testing.fakes import FakePlugin
from podresources import CallFailed, NotReady, PodNotFound, RateLimited, WatchDropped
from podresources.pods_api import EventType, PodEvent, PodsClient, PodWatch
from tests.helpers import device, devices

GPU = "vendor.com/gpu"
SERVES = Settings(kubelet_version="1.37", durability="process", pod_resources_qps=None)
SYNCED = PodEvent(EventType.INITIAL_SYNC_COMPLETE, {})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kubelet(clock: ManualClock) -> Iterator[MockKubelet]:
    with MockKubelet(settings=SERVES, clock=clock) as started:
        yield started


@pytest.fixture
def client(kubelet: MockKubelet) -> Iterator[PodsClient]:
    with PodsClient(kubelet.pods_api_socket) as opened:
        yield opened


@pytest.fixture
def watch(client: PodsClient) -> Iterator[PodWatch]:
    """A watch that has seen the initial pods."""
    with client.watch_pods(30) as opened:
        for event in opened:
            if event == SYNCED:
                break
        yield opened


def never(uid: str, *, gpus: int = 0) -> dict[str, Any]:
    manifest = pod_manifest(uid, {GPU: gpus} if gpus else {}, uid=uid)
    manifest["spec"]["restartPolicy"] = "Never"
    return manifest


def seen(watch: PodWatch, count: int) -> list[tuple[str, str, str | None]]:
    """Return type, UID and phase of the next events."""
    events = [next(watch) for _ in range(count)]
    return [
        (each.type, each.pod["metadata"]["uid"], each.pod.get("status", {}).get("phase"))
        for each in events
    ]


def uids(client: PodsClient) -> list[str]:
    return [pod["metadata"]["uid"] for pod in client.list_pods()]


# -- which kubelets serve it -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "gates", "served"),
    [
        ("1.36", {}, False),
        ("1.36", {"PodsAPI": True}, True),
        ("1.37", {}, True),
        ("1.37", {"PodsAPI": False}, False),
        ("1.32", {}, False),
    ],
)
def test_versions_that_serve_it(version: str, gates: dict[str, bool], served: bool) -> None:
    options = Settings(kubelet_version=version, feature_gates=gates)
    with MockKubelet(settings=options) as kubelet:
        assert kubelet.pods_api_socket == kubelet.root / "pods-api" / "pods-api.sock"
        assert kubelet.pods_api_socket.is_socket() is served
        assert kubelet.pods_api_socket.parent.exists() is served
        if served:
            assert stat.S_IMODE(kubelet.pods_api_socket.parent.stat().st_mode) == 0o750
    assert not kubelet.pods_api_socket.exists()


def test_socket_is_checked_before_the_start(tmp_path: Any, directory: Any) -> None:
    with MockKubelet(directory, SERVES), pytest.raises(StartError, match="another kubelet serves"):
        MockKubelet(directory, SERVES).start()
    (directory / "pods-api").rmdir()
    (directory / "pods-api").symlink_to(tmp_path)
    with pytest.raises(StartError, match="pods-api is a symbolic link"):
        MockKubelet(directory, SERVES).start()


def test_rate_limit_is_that_of_the_settings() -> None:
    options = Settings(kubelet_version="1.37", pod_resources_qps=0.001, pod_resources_burst=2)
    with MockKubelet(settings=options) as kubelet, PodsClient(kubelet.pods_api_socket) as client:
        assert client.list_pods() == ()
        with pytest.raises(PodNotFound):
            client.get_pod("x")
        with pytest.raises(RateLimited):
            client.list_pods()


# -- pods ------------------------------------------------------------------------------------


def test_pod_has_what_the_kubelet_knows(
    kubelet: MockKubelet, client: PodsClient, clock: ManualClock
) -> None:
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices("a", "b"))
    kubelet.admit(never("train", gpus=2))
    pod = client.get_pod("train")
    assert pod["metadata"] == {"name": "train", "namespace": "default", "uid": "train"}
    assert (pod["spec"]["nodeName"], pod["spec"]["restartPolicy"]) == ("mock", "Never")
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {GPU: "2"}
    status = pod["status"]
    assert (status["phase"], status["qosClass"]) == ("Running", "BestEffort")
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    (entry,) = status["containerStatuses"]
    assert entry["started"] and "startedAt" in entry["state"]["running"]
    assert entry["allocatedResourcesStatus"] == [
        {
            "name": GPU,
            "resources": [
                {"resourceID": "a", "health": "Healthy"},
                {"resourceID": "b", "health": "Healthy"},
            ],
        }
    ]
    # Times are those of the changes, not of the call.
    clock.advance(100)
    assert client.get_pod("train") == pod == client.list_pods()[0]


def test_list_is_sorted_by_uid_and_has_ended_and_rejected_pods(
    kubelet: MockKubelet, client: PodsClient
) -> None:
    for uid in ("c", "a", "b"):
        kubelet.admit(never(uid))
    kubelet.finish("b")
    too_large = pod_manifest("d", {"cpu": "1000000"}, uid="d")
    with MockKubelet(
        settings=Settings(kubelet_version="1.37", node_allocatable={"cpu": 1000})
    ) as k:
        assert not k.admit(too_large).admitted
        with PodsClient(k.pods_api_socket) as other:
            rejected = other.get_pod("d")["status"]
    assert (rejected["phase"], rejected["reason"]) == ("Failed", "OutOfcpu")
    assert rejected["message"].startswith("Pod was rejected: ")
    assert [pod["status"]["phase"] for pod in client.list_pods()] == [
        "Running", "Succeeded", "Running",
    ]  # fmt: skip
    kubelet.terminate("a", "b")
    assert uids(client) == ["c"]


def test_pod_that_is_not_admitted_yet_is_pending(kubelet: MockKubelet, client: PodsClient) -> None:
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices("a"))
    allocating, proceed = threading.Event(), threading.Event()

    def block(_: object) -> None:
        allocating.set()
        assert proceed.wait(20)

    plugin.before_answer = block
    thread = threading.Thread(target=lambda: kubelet.admit(never("train", gpus=1)), daemon=True)
    thread.start()
    try:
        assert allocating.wait(20)
        assert client.get_pod("train")["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
        with client.watch_pods(20) as watch:
            assert seen(watch, 1) == [("ADDED", "train", "Pending")]
            assert next(watch) == SYNCED
            proceed.set()
            # Added again when the status manager has it.
            assert seen(watch, 2) == [
                ("ADDED", "train", "Pending"),
                ("MODIFIED", "train", "Running"),
            ]
    finally:
        proceed.set()
        thread.join(20)


# -- events ----------------------------------------------------------------------------------


def test_events_of_a_pod_that_finishes(kubelet: MockKubelet, watch: PodWatch) -> None:
    kubelet.admit(never("train"))
    assert seen(watch, 2) == [("ADDED", "train", "Pending"), ("MODIFIED", "train", "Running")]
    kubelet.finish("train")
    assert seen(watch, 1) == [("MODIFIED", "train", "Succeeded")]
    ended = next(watch)
    assert ended.type == "DELETED"
    assert ended.pod == {"metadata": {"name": "train", "namespace": "default", "uid": "train"}}
    # The deletion of an ended pod sends nothing.
    kubelet.delete("train")
    kubelet.admit(never("next"))
    assert seen(watch, 1) == [("ADDED", "next", "Pending")]


def test_pod_that_ended_before_the_watch_has_no_events(
    kubelet: MockKubelet, client: PodsClient
) -> None:
    kubelet.admit(never("train"))
    kubelet.finish("train")
    with client.watch_pods(30) as watch:
        assert seen(watch, 1) == [("ADDED", "train", "Succeeded")]
        assert next(watch) == SYNCED
        kubelet.delete("train", 5)
        assert uids(client) == []
        # Not even if another pod has its UID.
        kubelet.admit(never("train"))
        assert seen(watch, 2) == [("ADDED", "train", "Pending"), ("MODIFIED", "train", "Running")]


def test_events_of_a_deletion(
    kubelet: MockKubelet, client: PodsClient, watch: PodWatch, clock: ManualClock
) -> None:
    kubelet.admit(never("train"))
    seen(watch, 2)
    kubelet.delete("train", 5)
    deleting = next(watch)
    assert (deleting.type, deleting.pod["status"]["phase"]) == ("MODIFIED", "Running")
    metadata = deleting.pod["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 5
    assert metadata["deletionTimestamp"] > deleting.pod["status"]["startTime"]
    assert client.get_pod("train") == deleting.pod
    clock.advance(5)
    exited, final = next(watch), next(watch)
    assert exited.pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert (final.type, final.pod["status"]["phase"]) == ("MODIFIED", "Failed")
    assert seen(watch, 1) == [("DELETED", "train", None)]
    assert uids(client) == []


def test_events_of_a_forced_deletion(kubelet: MockKubelet, watch: PodWatch) -> None:
    kubelet.admit(never("train"))
    kubelet.terminate("train")
    assert seen(watch, 3) == [
        ("ADDED", "train", "Pending"), ("MODIFIED", "train", "Running"), ("DELETED", "train", None),
    ]  # fmt: skip


def test_events_of_a_rejected_pod(kubelet: MockKubelet, watch: PodWatch) -> None:
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices("a"))
    assert not kubelet.admit(never("large", gpus=2)).admitted
    assert seen(watch, 1) == [("ADDED", "large", "Failed")]
    kubelet.delete("large", 5)
    assert seen(watch, 2) == [("MODIFIED", "large", "Failed"), ("DELETED", "large", None)]


def test_rejected_pod_comes_again(kubelet: MockKubelet, watch: PodWatch) -> None:
    """The event equals the one before, but is not a repetition."""
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices("a"))
    for _ in range(2):
        kubelet.admit(never("large", gpus=2))
        kubelet.terminate("large")
    assert [next(watch).type for _ in range(4)] == ["ADDED", "DELETED"] * 2


def test_unchanged_status_is_not_sent() -> None:
    gates = {"ResourceHealthStatus": False}
    options = Settings(kubelet_version="1.37", feature_gates=gates)
    with MockKubelet(settings=options) as kubelet, PodsClient(kubelet.pods_api_socket) as client:
        plugin = FakePlugin(GPU)
        plugin.register(kubelet.manager.plugins)
        plugin.send_list(devices("a"))
        with client.watch_pods(30) as watch:
            assert next(watch) == SYNCED
            kubelet.admit(never("train", gpus=1))
            seen(watch, 2)
            plugin.send_list([device("a", health="Unhealthy")])
            assert kubelet.events.recent(EventKind.DEVICE_HEALTH)
            kubelet.finish("train")
            assert seen(watch, 1) == [("MODIFIED", "train", "Succeeded")]


def test_events_of_containers_and_devices(kubelet: MockKubelet, watch: PodWatch) -> None:
    plugin = FakePlugin(GPU)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices("a"))
    kubelet.admit(pod_manifest("train", {GPU: 1}, uid="train"))
    seen(watch, 2)
    plugin.send_list([device("a", health="Unhealthy")])
    (entry,) = next(watch).pod["status"]["containerStatuses"]
    assert entry["allocatedResourcesStatus"][0]["resources"] == [
        {"resourceID": "a", "health": "Unhealthy"}
    ]
    kubelet.exit_container("train", "main", 1)
    states = [next(watch).pod["status"]["containerStatuses"][0] for _ in range(2)]
    assert [next(iter(each["state"])) for each in states] == ["terminated", "running"]
    assert [each["restartCount"] for each in states] == [0, 1]


def test_without_a_watch_nothing_is_subscribed(kubelet: MockKubelet, client: PodsClient) -> None:
    before = kubelet.events._subscribers
    watches = [client.watch_pods(20) for _ in range(2)]
    assert [next(each) for each in watches] == [SYNCED, SYNCED]
    assert len(kubelet.events._subscribers) == len(before) + 1
    for each in watches:
        each.cancel()
    assert kubelet.wait_for(lambda: kubelet.events._subscribers == before, 20) is None
    with client.watch_pods(20) as watch:
        assert next(watch) == SYNCED
        kubelet.admit(never("train"))
        assert seen(watch, 1) == [("ADDED", "train", "Pending")]


def test_slow_watch_is_dropped_with_a_warning(kubelet: MockKubelet, client: PodsClient) -> None:
    """Admissions do not wait for it."""
    many = pod_manifest("a", {}, uid="a")
    spec = many["spec"]
    spec["containers"] = [
        {**spec["containers"][0], "name": f"c{number}", "image": "i" * 40_000}
        for number in range(20)
    ]
    watch = client.watch_pods(60)
    assert next(watch) == SYNCED
    for _ in range(20):
        kubelet.admit(many)
        kubelet.terminate("a")
        if kubelet.events.recent(EventKind.WATCH_DROPPED):
            break
    (event,) = kubelet.events.recent(EventKind.WATCH_DROPPED)
    dropped = kubelet.telemetry.pods_api_counters()
    assert dropped == {("kubelet_pod_watch_events_dropped_total", ""): 1}
    assert event.is_warning and "reads too slowly" in event.message
    with pytest.raises(WatchDropped):
        list(watch)
    with client.watch_pods(20) as again:
        assert next(again).type in ("ADDED", "INITIAL_SYNC_COMPLETE")


def test_metrics_of_the_version(client: PodsClient, kubelet: MockKubelet) -> None:
    client.list_pods()
    with pytest.raises(PodNotFound):
        client.get_pod("train")
    assert kubelet.telemetry.pods_api_counters() == {
        ("kubelet_pod_requests_get_total", "NotFound"): 1,
        ("kubelet_pod_requests_list_total", "OK"): 1,
        ("kubelet_pod_requests_total", "NotFound"): 1,
        ("kubelet_pod_requests_total", "OK"): 1,
        ("kubelet_pod_watch_events_dropped_total", ""): 0,
    }
    older = Settings(kubelet_version="1.36", feature_gates={"PodsAPI": True})
    with MockKubelet(settings=older) as other, PodsClient(other.pods_api_socket) as its:
        its.list_pods()
        counted = other.telemetry.pods_api_counters()
    assert counted == {("kubelet_pod_watch_events_dropped_total", ""): 0}
    with MockKubelet(settings=Settings(kubelet_version="1.35")) as oldest:
        assert oldest.telemetry.pods_api_counters() == {}


# -- restarts --------------------------------------------------------------------------------


def test_restart_ends_watches_and_a_new_one_has_the_pods(
    kubelet: MockKubelet, client: PodsClient, watch: PodWatch
) -> None:
    kubelet.admit(never("train"))
    seen(watch, 2)
    before = client.get_pod("train")
    kubelet.restart()
    with pytest.raises(WatchDropped, match="watch client channel closed"):
        list(watch)
    assert client.get_pod("train") == before
    with client.watch_pods(20) as again:
        assert seen(again, 1) == [("ADDED", "train", "Running")]
        assert next(again) == SYNCED
        kubelet.finish("train")
        assert seen(again, 2) == [("MODIFIED", "train", "Succeeded"), ("DELETED", "train", None)]


def test_kubelet_is_not_ready_until_all_pods_are_known(directory: Any) -> None:
    with MockKubelet(directory, SERVES) as first:
        plugin = FakePlugin(GPU)
        plugin.register(first.manager.plugins)
        plugin.send_list(devices("a"))
        first.admit(never("train", gpus=1))
    with MockKubelet(directory, SERVES) as kubelet, PodsClient(kubelet.pods_api_socket) as client:
        for call in (
            client.list_pods, lambda: client.get_pod("train"), lambda: next(client.watch_pods(9)),
        ):  # fmt: skip
            with pytest.raises(NotReady):
                call()
        kubelet.sources_ready()
        assert client.list_pods() == ()


def test_older_kubelet_serves_the_pods_that_it_knows(directory: Any) -> None:
    older = Settings(kubelet_version="1.36", feature_gates={"PodsAPI": True})
    with MockKubelet(directory, older) as first:
        plugin = FakePlugin(GPU)
        plugin.register(first.manager.plugins)
        plugin.send_list(devices("a"))
        first.admit(never("train", gpus=1))
    with MockKubelet(directory, older) as kubelet, PodsClient(kubelet.pods_api_socket) as client:
        assert client.list_pods() == ()
        kubelet.admit(never("other"))
        assert uids(client) == ["other"]


def test_restarted_kubelet_is_not_ready_until_it_has_readmitted_its_pods(
    kubelet: MockKubelet, client: PodsClient
) -> None:
    kubelet.admit(never("train"))
    errors: list[Exception] = []

    def ask(event: Event) -> None:
        if event.kind is EventKind.ADMITTED:
            try:
                client.list_pods()
            except NotReady as error:
                errors.append(error)

    kubelet.events.subscribe(ask)
    kubelet.restart()
    assert len(errors) == 1
    assert uids(client) == ["train"]


# -- faults ----------------------------------------------------------------------------------


def test_fail_pods_api(kubelet: MockKubelet, client: PodsClient) -> None:
    kubelet.faults.set("fail-pods-api:method=GetPod,code=INTERNAL,text=broken,times=1")
    kubelet.faults.set("fail-pods-api:method=WatchPods,times=1")
    assert client.list_pods() == ()
    with pytest.raises(CallFailed, match="INTERNAL: broken"):
        client.get_pod("train")
    with pytest.raises(PodNotFound):
        client.get_pod("train")
    with pytest.raises(Exception, match="injected fault"):
        next(client.watch_pods(20))
    with client.watch_pods(20) as watch:
        assert next(watch) == SYNCED
    assert [event.details["rpc"] for event in kubelet.events.recent("fault")] == [
        "GetPod", "WatchPods",
    ]  # fmt: skip


def test_delay_pods_api(kubelet: MockKubelet, client: PodsClient, clock: ManualClock) -> None:
    state = kubelet.faults.set("delay-pods-api:seconds=30,times=1")
    listed: list[Any] = []
    thread = threading.Thread(target=lambda: listed.append(client.list_pods()), daemon=True)
    thread.start()
    kubelet.wait_for(lambda: kubelet.faults.list()[0].holding == 1, 20)
    assert listed == [] and state.fired == 0
    # Other calls go on.
    with pytest.raises(PodNotFound):
        client.get_pod("train")
    clock.advance(30)
    thread.join(20)
    assert listed == [()]


def test_end_pod_watches(kubelet: MockKubelet, watch: PodWatch, client: PodsClient) -> None:
    kubelet.faults.set("end-pod-watches")
    with pytest.raises(WatchDropped):
        next(watch)
    assert client.list_pods() == ()


def test_faults_have_no_effect_without_the_api() -> None:
    with MockKubelet(settings=Settings(kubelet_version="1.36")) as kubelet:
        kubelet.faults.set("end-pod-watches")
        kubelet.faults.set("fail-pods-api")
        assert kubelet.admit(never("train")).admitted


# -- a client that follows the events has what a list has -----------------------------------------

Step = Callable[[MockKubelet], object]
_UIDS = st.sampled_from("abc")


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, str]:
    action = draw(st.sampled_from(["admit", "always", "finish", "exit", "delete", "terminate"]))
    return action, draw(_UIDS)


def act(kubelet: MockKubelet, clock: ManualClock, action: str, uid: str) -> None:
    known = kubelet.pods()
    if action in ("admit", "always") and uid not in known:
        kubelet.admit(never(uid) if action == "admit" else pod_manifest(uid, {}, uid=uid))
    elif action == "terminate" and uid in known:
        kubelet.terminate(uid)
    elif action == "delete" and uid in known:
        kubelet.delete(uid, 3)
        clock.advance(2)
    elif action == "exit" and uid in known and "main" in known[uid].running:
        kubelet.exit_container(uid, "main", 1)
    elif action == "finish" and uid in known and known[uid].phase == "Running":
        with contextlib.suppress(RequestError):  # restartPolicy Always
            kubelet.finish(uid)


@given(st.lists(steps(), max_size=6), st.lists(steps(), max_size=12))
def test_replayed_events_equal_the_list(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    clock = ManualClock()
    with (
        MockKubelet(settings=SERVES, clock=clock) as kubelet,
        PodsClient(kubelet.pods_api_socket) as client,
    ):
        for action, uid in before:
            act(kubelet, clock, action, uid)
        with client.watch_pods(30) as watch:
            replica = Replica()
            replica.follow(watch, until=lambda event: event == SYNCED)
            assert replica.pods == by_uid(client)
            for action, uid in after:
                act(kubelet, clock, action, uid)
            kubelet.admit(never("last"))
            replica.follow(watch, until=lambda event: is_running(event, "last"))
            listed = {uid: pod for uid, pod in by_uid(client).items() if not has_ended(pod)}
            assert replica.alive() == listed


class Replica:
    """Pods as a client of WatchPods has them."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}

    def alive(self) -> dict[str, Any]:
        # A watch that begins after the end of a pod has the pod for good, as in the kubelet.
        return {uid: pod for uid, pod in self.pods.items() if not has_ended(pod)}

    def follow(self, watch: PodWatch, until: Callable[[PodEvent], bool]) -> None:
        for event in watch:
            if event.pod:
                uid = event.pod["metadata"]["uid"]
                if event.type == "DELETED":
                    self.pods.pop(uid)
                else:
                    assert (event.type == "ADDED") is (uid not in self.alive())
                    self.pods[uid] = event.pod
            if until(event):
                return


def by_uid(client: PodsClient) -> dict[str, Any]:
    return {pod["metadata"]["uid"]: pod for pod in client.list_pods()}


def has_ended(pod: Any) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def is_running(event: PodEvent, uid: str) -> bool:
    pod = event.pod
    return bool(pod) and pod["metadata"]["uid"] == uid and pod["status"]["phase"] == "Running"
