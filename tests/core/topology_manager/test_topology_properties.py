"""Properties of admissions with topology, for random devices and pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from hypothesis import event, given
from hypothesis import strategies as st

from devicemanager.core.devices import Device
from devicemanager.core.explanation.model import AdmissionExplanation, StepExplanation
from devicemanager.core.explanation.text import render
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.testing.fakes import FakePlugin, Preference
from tests import strategies
from tests.node import GIB, Node, cpus_and_memory
from tests.strategies import GPU, NIC

CPU, MEMORY = ResourceName("cpu"), ResourceName("memory")

Inventory = Mapping[ResourceName, list[Device]]

# Fewer unusual devices than in other tests, so that alignment is possible.
numa = st.sampled_from([(0,), (1,), (0,), (1,), (0, 1), None, ()])


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    found: dict[ResourceName, list[Device]] = {}
    for resource in draw(st.sampled_from([(GPU,), (GPU, NIC), (GPU, NIC)])):
        rows = draw(st.lists(st.tuples(strategies.health, numa), max_size=8))
        found[resource] = [
            Device(strategies.DeviceId(f"{resource[-3:]}{number}"), *row)
            for number, row in enumerate(rows)
        ]
    return found


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    """Generate a pod with up to two init and two app containers, Guaranteed or not."""
    shares = draw(st.booleans())

    def container(name: str, is_init: bool) -> Container:
        limits = dict(draw(st.dictionaries(st.sampled_from([GPU, NIC]), st.integers(0, 3))))
        if shares:
            limits[CPU] = draw(st.integers(1, 3)) * 1000
            limits[MEMORY] = draw(st.integers(1, 3)) * GIB
        return Container(ContainerName(name), limits, limits, is_init and draw(st.booleans()))

    inits = [container(f"i{n}", True) for n in range(draw(st.integers(0, 2)))]
    apps = [container(f"a{n}", False) for n in range(draw(st.integers(1, 2)))]
    return Pod(PodUid(uid), uid, "default", tuple(apps), tuple(inits))


pod_lists = st.integers(1, 3).flatmap(lambda n: st.tuples(*[pods(f"p{i}") for i in range(n)]))

worlds = st.fixed_dictionaries(
    {
        "topology_policy": strategies.policies,
        "topology_scope": strategies.scopes,
        "shares": st.booleans(),
        "preference": strategies.preferences,
    }
)


def node_with(
    inventory: Inventory, *, shares: bool, preference: Preference | None, **settings: Any
) -> Node:
    node = Node(providers=cpus_and_memory() if shares else (), **settings)
    for resource, rows in inventory.items():
        plugin = FakePlugin(resource, preference=preference)
        plugin.register(node.manager.plugins, f"{resource[-3:]}.sock")
        plugin.send_list(rows)
    return node


def outcome(node: Node, admission: Admission) -> tuple[object, ...]:
    """Return the results of an admission without the plugins' responses."""
    uid = admission.pod.uid
    affinities = {name: one.affinity for name, one in admission.containers.items()}
    shares = [node.share(uid, c.name) for c, _ in admission.pod.all_containers()]
    return admission.reason, admission.message, affinities, node.devices(uid), shares


def steps(explanation: AdmissionExplanation) -> Iterator[StepExplanation]:
    return (step for step in explanation.steps if step.merge is not None)


# -- the explanation --------------------------------------------------------------------------


@strategies.examples(0.6)
@given(worlds, inventories(), pod_lists)
def test_explanation_agrees_with_the_admission(
    world: dict[str, Any], inventory: Inventory, specs: tuple[Pod, ...]
) -> None:
    node = node_with(inventory, **world)
    for spec in specs:
        admission = node.admit(spec)
        explanation = admission.explanation
        assert explanation is not None
        assert explanation.reason == admission.reason
        event(admission.reason or "admitted")
        text = render(explanation)
        assert text.endswith("\n") and "\n\n\n" not in text
        assert text == admission.explain()
        if admission.admitted:
            assert_chosen_is_held(explanation, admission)
        else:
            assert "chosen:" not in text
            assert_names_a_fault(explanation, admission)


def assert_chosen_is_held(explanation: AdmissionExplanation, admission: Admission) -> None:
    chosen = {
        step.container: {one.resource: list(one.chosen_ids) for one in step.resources if one.chosen}
        for step in explanation.steps
        if step.container is not None
    }
    assert chosen == {name: one.devices for name, one in admission.containers.items()}
    for step in steps(explanation):
        assert step.merge is not None and step.merge.admitted and step.error is None
        names = (
            [c.name for c, _ in admission.pod.all_containers()]
            if step.container is None
            else [step.container]
        )
        nodes = (
            None
            if step.merge.affinity.mask is None
            else tuple(node for node in (0, 1) if step.merge.affinity.mask >> node & 1)
        )
        assert {admission.containers[str(name)].affinity for name in names} == {nodes}


def assert_names_a_fault(explanation: AdmissionExplanation, admission: Admission) -> None:
    last = explanation.steps[-1]
    if admission.reason == "TopologyAffinityError":
        assert last.merge is not None and not last.merge.admitted
        assert last.merge.faults and last.error is None
        assert not any(one.chosen for one in last.resources)
    else:
        assert admission.reason == "UnexpectedAdmissionError"
        assert last.error is not None and last.error in admission.message
    assert all(step.merge is None or step.merge.admitted for step in explanation.steps[:-1])


@strategies.examples(0.6)
@given(worlds, inventories(), pod_lists)
def test_explanation_does_not_change_later(
    world: dict[str, Any], inventory: Inventory, specs: tuple[Pod, ...]
) -> None:
    # It is built when it is requested, which can be long after the admission.
    node = node_with(inventory, **world)
    admissions = [node.admit(spec) for spec in specs]
    before = [admission.explain() for admission in admissions]
    node.terminate(*(spec.uid for spec in specs))
    node.admit(attrs.evolve(specs[0], uid=PodUid("later")))
    assert [admission.explain() for admission in admissions] == before


# -- alignment ----------------------------------------------------------------------------------


@given(worlds, inventories(), pod_lists)
def test_preferred_result_is_aligned(
    world: dict[str, Any], inventory: Inventory, specs: tuple[Pod, ...]
) -> None:
    node = node_with(inventory, **world)
    where = {row.id: row.numa for rows in inventory.values() for row in rows}
    strict = world["topology_policy"] in {"restricted", "single-numa-node"}
    for spec in specs:
        admission = node.admit(spec)
        if not admission.admitted:
            continue
        explanation = admission.explanation
        assert explanation is not None
        for step in steps(explanation):
            assert step.merge is not None
            affinity = step.merge.affinity
            assert affinity.preferred or not strict
            if affinity.mask is None or not affinity.preferred:
                continue
            if world["topology_policy"] == "single-numa-node":
                assert affinity.mask.bit_count() == 1
            event("preferred alignment")
            names = (
                [c.name for c, _ in spec.all_containers()]
                if step.container is None
                else [ContainerName(step.container)]
            )
            for name in names:
                for ids in node.devices(spec.uid).get(name, {}).values():
                    for id_ in ids:
                        nodes = where[strategies.DeviceId(id_)]
                        if nodes:  # only reused devices can be without a node
                            assert any(affinity.mask >> each & 1 for each in nodes)
                share = node.share(spec.uid, name)
                if share.cpu_ids:
                    assert all(affinity.mask >> (cpu // 4) & 1 for cpu in share.cpu_ids)
                for block in share.memory:
                    assert all(affinity.mask >> each & 1 for each in block.nodes)
    node.manager.self_check()


# -- independence ---------------------------------------------------------------------------------


@strategies.examples(0.6)
@given(worlds, inventories(), pod_lists, st.randoms(use_true_random=False))
def test_order_of_devices_and_resources_does_not_matter(
    world: dict[str, Any], inventory: Inventory, specs: tuple[Pod, ...], random: Any
) -> None:
    def shuffled(amounts: Mapping[ResourceName, int]) -> dict[ResourceName, int]:
        return dict(random.sample(list(amounts.items()), len(amounts)))

    def mixed(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            attrs.evolve(c, limits=shuffled(c.limits), requests=shuffled(c.requests))
            for c in containers
        )

    other = {
        resource: random.sample(inventory[resource], len(inventory[resource]))
        for resource in random.sample(list(inventory), len(inventory))
    }
    one, two = node_with(inventory, **world), node_with(other, **world)
    for spec in specs:
        again = attrs.evolve(
            spec,
            containers=mixed(spec.containers),
            init_containers=mixed(spec.init_containers),
        )
        first, second = one.admit(spec), two.admit(again)
        assert outcome(one, first) == outcome(two, second)
        assert first.explain() == second.explain()


@strategies.examples(0.6)
@given(worlds, inventories(), pod_lists, st.booleans())
def test_restart_does_not_change_running_pods(
    world: dict[str, Any], inventory: Inventory, specs: tuple[Pod, ...], reboot: bool
) -> None:
    # All plugins register before the pods are admitted again. Without init containers, whose
    # devices other containers reuse, everything is as before.
    node = node_with(inventory, **world)
    specs = tuple(attrs.evolve(spec, init_containers=()) for spec in specs)
    admitted = [spec.uid for spec in specs if node.admit(spec, start=True).admitted]
    before = {uid: (node.devices(uid), node.manager.providers()) for uid in admitted}
    node.new_process(reboot=reboot)
    for resource, rows in inventory.items():
        plugin = FakePlugin(resource)
        plugin.register(node.manager.plugins, f"{resource[-3:]}.sock")
        plugin.send_list(rows)
    node.readmit()
    phases = {uid: node.pods.known(uid).phase.value for uid in admitted}
    assert phases == dict.fromkeys(admitted, "Running"), [
        node.pods.known(uid).message for uid in admitted
    ]
    assert {uid: (node.devices(uid), node.manager.providers()) for uid in admitted} == before
