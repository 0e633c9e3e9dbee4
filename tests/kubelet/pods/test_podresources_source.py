"""The PodResources source is right after any changes, and returns equal objects until then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.pods import Container, Pod
from devicemanager.kubelet.manager.manager import DeviceManager
from devicemanager.kubelet.pods.podresources import PodSnapshot, PodSource, by_name
from podresources import DynamicResource

MAIN = ContainerName("main")
GPU = ResourceName("vendor.com/gpu")
NAMES = ["b", "a", "c-10", "c-9"]


class Claims:
    """One claim for each pod that was given one, with a number that grows."""

    def __init__(self) -> None:
        self.version = 0
        self.versions: dict[str, int] = {}

    def give(self, pod: str) -> None:
        self.version += 1
        self.versions[pod] = self.version

    def pod_version(self, pod: str) -> int:
        return self.versions.get(pod, 0)

    def dynamic_resources(self, pod: Pod, container: ContainerName) -> tuple[DynamicResource, ...]:
        given = self.pod_version(pod.uid)
        return (DynamicResource(f"{container}-{given}", pod.namespace),) if given else ()


class Node:
    """Pods that are added, deleted and change their devices."""

    def __init__(self) -> None:
        self.state = DeviceManager().state
        self.claims = Claims()
        self.pods: dict[str, Pod] = {}
        self.version = 0

    def snapshot(self) -> PodSnapshot:
        return PodSnapshot(self.version, tuple(sorted(self.pods.values(), key=by_name)))

    def come(self, name: str) -> None:
        self.go(name)
        self.pods[name] = Pod(PodUid(name), name, f"ns-{self.version}", (Container(MAIN),))
        self.version += 1

    def go(self, name: str) -> None:
        if self.pods.pop(name, None) is not None:
            self.state.forget(PodUid(name))
            self.version += 1

    def claim(self, name: str) -> None:
        self.claims.give(name)

    def source(self) -> PodSource:
        return PodSource(self.state, self.snapshot, claims=(self.claims,))

    def hold(self, name: str) -> None:
        if name in self.pods:
            held = AllocatedDevices({0: (DeviceId(f"device-{self.state.version}"),)}, b"")
            self.state.ledger.restore([(PodUid(name), MAIN, GPU, held)])
            self.state.note_pod(PodUid(name))


steps = st.lists(
    st.tuples(st.sampled_from(["come", "go", "hold", "claim", "tell"]), st.sampled_from(NAMES)),
    max_size=20,
)


@given(steps)
def test_source_returns_what_a_new_source_would(changes):
    node = Node()
    source = node.source()
    for verb, name in [*changes, ("tell", "")]:
        if verb != "tell":
            getattr(node, verb)(name)
            continue
        previous = source.pods()
        assert list(previous) == list(node.source().pods())
        assert [(p.namespace, p.name) for p in previous] == sorted(
            (p.namespace, p.name) for p in node.pods.values()
        )
        again = source.pods()
        assert all(one is other for one, other in zip(previous, again, strict=True))


@given(st.permutations(range(60)), st.data())
def test_many_pods_stay_sorted(order, data):
    node = Node()
    source = node.source()
    for number in order:
        node.come(f"pod-{number}")
    for _ in range(3):
        for number in data.draw(st.sets(st.sampled_from(range(60)), max_size=30)):
            node.go(f"pod-{number}")
        previous = [(p.namespace, p.name) for p in source.pods()]
        assert previous == sorted((p.namespace, p.name) for p in node.pods.values())


def test_unchanged_pods_stay_the_same_objects():
    node = Node()
    source = node.source()
    for name in NAMES:
        node.come(name)
    before = source.pods()
    node.hold("a")
    after = source.pods()
    assert [old is new for old, new in zip(before, after, strict=True)].count(False) == 1
    (changed,) = (pod for pod in after if pod.name == "a")
    assert changed.containers[0].devices[0].resource_name == GPU


def test_change_of_a_claim_rebuilds_only_its_pod():
    node = Node()
    source = node.source()
    for name in NAMES:
        node.come(name)
    version, before = source.version(), source.pods()
    node.claim("b")
    assert source.version() > version
    after = source.pods()
    assert [old is new for old, new in zip(before, after, strict=True)].count(False) == 1
    (changed,) = (pod for pod in after if pod.name == "b")
    assert changed.containers[0].dynamic_resources == (DynamicResource("main-1", "ns-0"),)


def test_lost_claim_and_more_devices_are_both_noticed():
    # The version of the claims falls by as much as the version of the devices grows.
    node = Node()
    source = node.source()
    node.come("a")
    node.hold("a")
    for _ in range(3):
        node.claim("a")
    before = source.pods()
    del node.claims.versions["a"]
    devices = node.state.pod_versions[PodUid("a")]
    while node.state.pod_versions[PodUid("a")] < devices + 3:
        node.hold("a")
    node.claims.version += 1
    (old,), (new,) = before, source.pods()
    assert old.containers[0].dynamic_resources
    assert not new.containers[0].dynamic_resources
