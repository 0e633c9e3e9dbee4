"""Admission of whole pods: all or nothing, also with events during RPCs."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from devicemanager.core.allocation.container import PodAllocation, give_back
from devicemanager.core.allocation.pod import admit_pod
from devicemanager.core.allocation.selection import AllocateAnswer, PreferenceWanted, Wanted
from devicemanager.core.errors import RpcError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.node import Node
from devicemanager.core.pods import Container, Pod, pod_requests
from devicemanager.core.rejection import Rejected
from devicemanager.core.topology import Hint
from tests import strategies
from tests.helpers import World, answer, container, device, devices, entries, pod
from tests.strategies import GPU, NIC

# -- a pod's effective request ---------------------------------------------------------


@pytest.mark.parametrize(
    ("init", "apps", "want"),
    [
        ([], [1, 2], 3),
        ([(5, False)], [1, 2], 5),
        ([(2, False), (3, False)], [1], 3),
        ([(2, True)], [1], 3),
        ([(2, True), (3, False)], [1], 5),
        ([(3, False), (2, True)], [1], 3),
        ([(1, True), (1, True), (1, False)], [2], 4),
    ],
)
def test_pod_requests(init, apps, want):
    spec = pod(
        "p",
        *(container(f"a{n}", gpu=count) for n, count in enumerate(apps)),
        init=[container(f"i{n}", stays, gpu=count) for n, (count, stays) in enumerate(init)],
    )
    assert pod_requests(spec, lambda each: each.limits) == {GPU: want}


def test_effective_request_of_init_containers():
    init = Container(ContainerName("i"), {GPU: 5}, {GPU: 5})
    spec = pod("p", container("a", gpu=1), init=[init])
    assert pod_requests(spec, lambda each: each.limits) == {GPU: 5}


@pytest.mark.parametrize("limits", [True, False])
def test_claim_backed_resources_are_not_requested(limits):
    spec = pod("p", container("a", gpu=1, nic=2), init=[container("i", gpu=1)])
    spec = attrs.evolve(spec, backed=frozenset({("a", GPU)}))
    init, app = (each for each, _ in spec.without_backed(limits=limits).all_containers())
    assert init == container("i", gpu=1)
    assert app.requests == {NIC: 2}
    assert app.limits == ({NIC: 2} if limits else {GPU: 1, NIC: 2})


@given(strategies.pods("p"))
def test_effective_request_is_the_largest_at_any_time(spec):
    # Simulate the pod's lifecycle: the containers that run together never need more than
    # that, and once they need exactly that.
    for resource in (GPU, NIC):
        moments, running = [0], []
        for init in spec.init_containers:
            moments.append(sum(running) + init.limits.get(resource, 0))
            if init.restartable:
                running.append(init.limits.get(resource, 0))
        moments.append(sum(running) + sum(c.limits.get(resource, 0) for c in spec.containers))
        found = pod_requests(spec, lambda each: each.limits)
        assert found.get(resource, 0) == max(moments)


# -- scopes ----------------------------------------------------------------------------

TWO_NODES = [device("a0", 0), device("b0", 0), device("c1", 1), device("d1", 1)]


def test_container_scope_aligns_each_container():
    world = World({GPU: TWO_NODES}, policy="single-numa-node")
    allocation = world.admit(pod("p", container("x", gpu=1), container("y", gpu=2)))
    assert world.held("p") == {"x": {GPU: ["a0"]}, "y": {GPU: ["c1", "d1"]}}
    assert allocation.affinities == {"x": Hint(0b01, True), "y": Hint(0b10, True)}


def test_pod_scope_aligns_the_whole_pod():
    world = World({GPU: TWO_NODES}, policy="single-numa-node", scope="pod")
    assert_rejected_by_topology(world, pod("p", container("x", gpu=1), container("y", gpu=2)))
    allocation = world.admit(pod("q", container("x", gpu=1), container("y", gpu=1)))
    assert world.held("q") == {"x": {GPU: ["a0"]}, "y": {GPU: ["b0"]}}
    assert allocation.affinities == {"x": Hint(0b01, True), "y": Hint(0b01, True)}


def test_policy_none_gives_no_affinity():
    world = World({GPU: TWO_NODES})
    assert world.admit(pod("p", gpu=3)).affinities == {}
    assert world.held("p") == {"app": {GPU: ["a0", "b0", "c1"]}}


def assert_rejected_by_topology(world: World, spec: Pod) -> None:
    before = entries(world.ledger)
    with pytest.raises(Rejected) as rejected:
        world.admit(spec)
    assert rejected.value.reason == "TopologyAffinityError"
    assert rejected.value.message == "Resources cannot be allocated with Topology locality"
    assert entries(world.ledger) == before
    world.check()


@pytest.mark.parametrize(
    ("policy", "admitted"),
    [("none", True), ("best-effort", True), ("restricted", True), ("single-numa-node", False)],
)
def test_request_larger_than_a_numa_node(policy, admitted):
    world = World({GPU: TWO_NODES}, policy=policy)
    if admitted:
        world.admit(pod("p", gpu=3))
    else:
        assert_rejected_by_topology(world, pod("p", gpu=3))


@pytest.mark.parametrize(
    ("policy", "admitted"),
    [("none", True), ("best-effort", True), ("restricted", False), ("single-numa-node", False)],
)
def test_free_devices_on_two_numa_nodes(policy, admitted):
    world = World({GPU: TWO_NODES}, policy=policy)
    world.admit(pod("p", container("x", gpu=1), container("y", gpu=1)), preferring("a0", "c1"))
    if admitted:
        world.admit(pod("q", gpu=2))
    elif policy == "restricted":
        assert_rejected_by_topology(world, pod("q", gpu=3))


def preferring(*ids: str):
    def answers(wanted: Wanted):
        return ids if isinstance(wanted, PreferenceWanted) else AllocateAnswer((b"",))

    return answers


# -- what must always hold ---------------------------------------------------------------

worlds = st.builds(
    World,
    strategies.inventories | strategies.full_inventories,
    policy=strategies.policies,
    scope=strategies.scopes,
    preferred=st.booleans(),
)


def fits(world: World, allocation: PodAllocation) -> None:
    """Check that a pod has the requested number of healthy devices, and that containers that
    keep their devices do not share them."""
    spec = allocation.pod
    held = world.held(spec.uid)
    kept: set[tuple[ResourceName, str]] = set()
    for each, is_init in spec.all_containers():
        for resource, count in each.limits.items():
            if count == 0 or resource not in world.endpoints:
                assert resource not in held.get(each.name, {})
                continue
            got = held[each.name][resource]
            listed = world.endpoints.devices(resource)
            healthy = set(listed.device_index.select(listed.healthy))
            assert len(got) == count and set(got) <= healthy
            if not is_init or each.restartable:
                mine = {(resource, id_) for id_ in got}
                assert not mine & kept
                kept |= mine


@given(worlds, strategies.pod_lists | strategies.light_pod_lists, strategies.preferences)
def test_random_pods_fit_or_change_nothing(world, pods, preference):
    # No device has two pods, admitted pods fit, and a rejected pod does not change the ledger.
    admitted = 0
    for spec in pods:
        before = entries(world.ledger)
        try:
            answers = answer if preference is None else lambda each: answer(each, preference)
            allocation = world.admit(spec, answers)
        except Rejected:
            assert entries(world.ledger) == before
        else:
            admitted += 1
            fits(world, allocation)
        world.check()
    event(f"{admitted} of {len(pods)} admitted")


def needs(spec: Pod, resource: ResourceName) -> int:
    """Return the number of different devices that the pod needs with reuse."""
    total = pool = 0
    for each, is_init in spec.all_containers():
        wanted = each.limits.get(resource, 0)
        total += max(0, wanted - pool)
        keeps = not is_init or each.restartable
        pool = max(0, pool - wanted) if keeps else max(pool, wanted)
    return total


@given(
    st.fixed_dictionaries({GPU: strategies.healthy_lists, NIC: strategies.healthy_lists}),
    strategies.pod_lists,
)
def test_pod_is_rejected_only_if_it_does_not_fit(lists, pods):
    # Without topology and plugin errors, only the number of devices decides.
    world = World(lists)
    free = {resource: len(rows) for resource, rows in lists.items()}
    for spec in pods:
        wanted = {resource: needs(spec, resource) for resource in free}
        # Without devices, no device is healthy, but then no request fits anyway.
        if all(wanted[resource] <= free[resource] for resource in free):
            world.admit(spec)
            free = {resource: free[resource] - wanted[resource] for resource in free}
        else:
            with pytest.raises(Rejected):
                world.admit(spec)
    assert {name: len(rows) for name, rows in lists.items()} == {
        name: free[name] + world.ledger.count(name) for name in free
    }


@given(
    st.data(),
    strategies.inventories,
    strategies.pod_lists,
    strategies.policies,
    strategies.scopes,
)
def test_order_of_lists_does_not_matter(data, lists, pods, policy, scope):
    # With permuted device lists, every pod has the same result, devices and affinity.
    shuffled = {name: data.draw(st.permutations(rows)) for name, rows in lists.items()}
    one = World(lists, policy=policy, scope=scope)
    other = World(shuffled, policy=policy, scope=scope)
    assert [outcome(one, spec) for spec in pods] == [outcome(other, spec) for spec in pods]
    assert entries(one.ledger) == entries(other.ledger)


def outcome(world: World, spec: Pod) -> object:
    try:
        return world.admit(spec).affinities
    except Rejected as rejected:
        return rejected.reason, rejected.message


@given(
    strategies.device_lists,
    strategies.device_lists,
    strategies.policies,
    strategies.scopes,
    strategies.pods("gpu-pod"),
    strategies.pods("nic-pod"),
)
def test_order_of_independent_pods_does_not_matter(gpus, nics, policy, scope, gpu_pod, nic_pod):
    # One pod requests only GPUs, the other only NICs: their order does not matter.
    pods = [only(gpu_pod, GPU), only(nic_pod, NIC)]
    seen = []
    for order in (pods, pods[::-1]):
        world = World({GPU: gpus, NIC: nics}, policy=policy, scope=scope)
        outcomes = {spec.uid: outcome(world, spec) for spec in order}
        seen.append((outcomes, entries(world.ledger)))
    assert seen[0] == seen[1]


def only(spec: Pod, resource: ResourceName) -> Pod:
    def kept(containers: Sequence[Container]) -> tuple[Container, ...]:
        return tuple(
            Container(c.name, {k: v for k, v in c.limits.items() if k == resource}, {},
                      c.restartable)
            for c in containers
        )  # fmt: skip

    return Pod(spec.uid, spec.name, spec.namespace, kept(spec.containers),
               kept(spec.init_containers))  # fmt: skip


# -- during RPCs --------------------------------------------------------------------------

ANSWERS = st.tuples(st.just("answer"), st.integers(0, 3), strategies.preferences)
FAULTS = st.one_of(
    st.tuples(st.sampled_from(["fail", "empty", "close"]), st.integers(0, 3), st.none()),
    st.tuples(st.just("list"), st.sampled_from(strategies.RESOURCES), strategies.device_lists),
    st.tuples(st.sampled_from(["leave", "expire"]), st.sampled_from(strategies.RESOURCES)).map(
        lambda pair: (*pair, None)
    ),
)
# Mostly responses: an admission needs several of them to make progress.
DISTURBANCES = st.integers(0, 9).flatmap(lambda n: FAULTS if n == 9 else ANSWERS)


class Interleaving:
    """Several concurrent admissions, advanced in any order."""

    def __init__(self, world: World, pods: Sequence[Pod]) -> None:
        self.world = world
        self.running = {spec.uid: world.begin(spec) for spec in pods}
        self.wanted: dict[PodUid, Wanted | None] = dict.fromkeys(self.running)
        self.admitted: dict[PodUid, dict[ContainerName, dict[ResourceName, object]]] = {}

    def step(self, number: int, kind: str, preference) -> None:
        if not self.running:
            return
        uid = sorted(self.running)[number % len(self.running)]
        allocation, steps = self.running[uid]
        wanted = self.wanted[uid]
        try:
            if kind == "close":
                steps.close()
                self._end(uid, allocation)
            elif wanted is None:
                self.wanted[uid] = next(steps)
            elif kind == "fail":
                self.wanted[uid] = steps.throw(RpcError("Unknown", "no"))
            elif kind == "empty" and not isinstance(wanted, PreferenceWanted):
                self.wanted[uid] = steps.send(AllocateAnswer(()))
            else:
                self.wanted[uid] = steps.send(answer(wanted, preference or strategies.fakes.first))
        except StopIteration:
            self.world.ledger.commit(allocation.draft)
            self.admitted[uid] = {
                name: dict(held) for name, held in allocation.draft.allocated.items()
            }
            self._end(uid, allocation)
        except Rejected:
            self._end(uid, allocation)

    def _end(self, uid: PodUid, allocation: PodAllocation) -> None:
        del self.running[uid]
        self.world.open.remove(allocation)

    def disturb(self, kind: str, what, extra) -> None:
        match kind:
            case "list" if what in self.world.plugins:
                self.world.list(what, extra)
            case "leave" if what in self.world.plugins:
                self.world.leave(what)
            case "expire":
                self.world.endpoints.expire(1000.0, 300.0)
            case "answer" | "fail" | "empty" | "close":
                self.step(what, kind, extra)


@strategies.examples(2)
@given(
    worlds,
    strategies.pod_lists | strategies.light_pod_lists,
    st.lists(DISTURBANCES, min_size=10, max_size=40),
)
def test_all_or_nothing_with_random_events_during_rpcs(world, pods, disturbances):
    # At every moment no device has two pods and the indexes are right. At the end the ledger
    # has exactly the devices of admitted pods: rejected pods, failed plugins and closed
    # generators leave nothing.
    interleaving = Interleaving(world, pods)
    for kind, what, extra in disturbances:
        interleaving.disturb(kind, what, extra)
        world.check()
    for _, steps in interleaving.running.values():
        steps.close()
    world.open.clear()
    world.check()
    wanted = {uid: held for uid, held in interleaving.admitted.items() if held}
    assert entries(world.ledger) == wanted
    event(f"{len(wanted)} got devices")
    for uid in wanted:
        counts_match(next(spec for spec in pods if spec.uid == uid), wanted[uid])


def counts_match(spec: Pod, held) -> None:
    for each, _ in spec.all_containers():
        for resource, holding in held.get(each.name, {}).items():
            assert len(holding.ids) == each.limits[resource]


def test_concurrent_pods_get_different_devices():
    world = World({GPU: devices("a", "b")}, preferred=False)
    both = [world.begin(pod(uid, gpu=1))[1] for uid in "pq"]
    assert [next(steps).device_ids for steps in both] == [("a",), ("b",)]
    world.check()


def test_pod_can_use_devices_of_a_failed_concurrent_pod():
    world = World({GPU: devices("a")}, preferred=False)
    _, first = world.begin(pod("p", gpu=1))
    next(first)
    with pytest.raises(Rejected, match="Requested: 1, Available: 0"):
        world.admit(pod("q", gpu=1))
    first.close()
    world.open.pop(0)
    world.admit(pod("q", gpu=1))
    assert world.held("q") == {"app": {GPU: ["a"]}}


def test_plugin_disconnects_during_preference():
    world = World({GPU: devices("a", "b")})
    allocation, steps = world.begin(pod("p", gpu=1))
    next(steps)
    world.leave(GPU)
    with pytest.raises(Rejected, match="Requested: 1, Available: 0"):
        steps.send(("a",))
    world.open.remove(allocation)
    world.check()
    assert not world.ledger.is_in_use(GPU)


def test_resource_is_removed_during_preference():
    world = World({GPU: devices("a", "b")})
    allocation, steps = world.begin(pod("p", gpu=1))
    next(steps)
    world.leave(GPU)
    assert world.endpoints.expire(1000.0, 300.0) == (GPU,)
    with pytest.raises(Rejected, match="Requested: 1, Available: 0"):
        steps.send(("a",))
    world.open.remove(allocation)
    world.check()


def test_generator_closed_before_it_started():
    world = World({GPU: devices("a")})
    allocation, steps = world.begin(pod("p", gpu=1))
    steps.close()
    world.open.remove(allocation)
    world.check()


def test_unexpected_error_frees_everything():
    world = World({GPU: devices("a")})

    def broken(wanted: Wanted):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        world.admit(pod("p", gpu=1), broken)
    world.check()
    assert not world.ledger.is_in_use(GPU)


def test_node_check_counts_concurrent_pods():
    # Checked, but not committed yet: the node check counts the pod already.
    node = Node({ResourceName("pods"): 1})
    world = World({})

    def admit(name: str) -> PodAllocation:
        spec = pod(name, container("main"))
        allocation = PodAllocation(spec, world.endpoints, world.ledger, node=node)
        assert list(admit_pod(allocation, world.hints)) == []
        return allocation

    first = admit("first")
    with pytest.raises(Rejected, match=r"^OutOfpods"):
        admit("second")
    give_back(first)
    assert admit("third").placed
