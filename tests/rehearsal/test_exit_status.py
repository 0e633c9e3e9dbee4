"""The exit status and the statements agree: each pod that is lost or without devices is named."""

from __future__ import annotations

import attrs
from hypothesis import given, reject
from hypothesis import strategies as st

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container as SpecContainer
from devicemanager.core.pods import Pod as SpecPod
from devicemanager.rehearsal import (
    Admit,
    Configure,
    Drain,
    Reboot,
    Rehearsal,
    RehearsalError,
    Restart,
    SetDevices,
    WithoutPlugin,
    rehearse,
    report,
)
from devicemanager.rehearsal.steps import Step
from devicemanager.snapshot import Snapshot, layout
from devicemanager.snapshot.model import KubeletConfig, LoggedPod, PodDirectories
from podresources import Allocatable, Container, ContainerDevices, Pod
from tests.snapshot.made_up import (
    DRIVER,
    GPU,
    NIC,
    WHOLE,
    allocatable,
    claim,
    claims,
    entry,
    saved,
    without,
)
from tests.strategies import examples

UNKNOWN = "vendor.com/other"
FREE = {GPU: ("g0", "g1", "g2", "g3"), NIC: ("n0", "n1")}
NAMES = {"u-a": "ml/a", "u-b": "ml/b"}
KUBELET = ("the kubelet does not start: ", "the kubelet panics in ")


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A node with two pods, whose containers have devices of up to two resources, and a claim."""
    free = {resource: list(ids) for resource, ids in FREE.items()}
    entries, pods = [], []
    for uid, name in NAMES.items():
        containers = []
        for container in ("main", "side"):
            wanted = draw(st.sets(st.sampled_from([GPU, NIC])))
            held = {resource: free[resource].pop(0) for resource in wanted if free[resource]}
            entries += [
                entry(uid, id_, resource=resource, container=container)
                for resource, id_ in held.items()
            ]
            devices = tuple(ContainerDevices(each, (id_,), (0,)) for each, id_ in held.items())
            containers.append(Container(container, devices))
        pods.append(Pod(name.partition("/")[2], "ml", tuple(containers)))
    state = claims(claim("gpu", *draw(st.sets(st.sampled_from([*NAMES]))), device="gpu-0"))
    policy = draw(st.sampled_from(["none", "restricted", "single-numa-node"]))
    node = attrs.evolve(
        WHOLE,
        pods=tuple(pods),
        allocatable=Allocatable(
            (*allocatable(*FREE[GPU]).devices, *allocatable(*FREE[NIC], resource=NIC).devices)
        ),
        checkpoint=saved(*entries, registered=FREE),
        dra_state=state,
        config=KubeletConfig("c", {"topologyManagerPolicy": policy}),
        directories=PodDirectories(
            tuple(NAMES), tuple(LoggedPod("ml", name[3:], uid) for uid, name in NAMES.items())
        ),
    )
    match draw(st.sampled_from(["whole", "whole", "damaged", "absent", "claims"])):
        case "damaged":
            return attrs.evolve(node, checkpoint=(node.checkpoint or b"")[:-9] + b"1}")
        case "absent":
            return without(node, layout.CHECKPOINT, "no such file", absent=True)
        case "claims":
            return attrs.evolve(node, dra_state=b"{")
    return node


def new_pod(resource: str, count: int, claim: str | None) -> SpecPod:
    limits = {ResourceName(resource): count}
    main = SpecContainer(ContainerName("main"), limits, limits)
    named = {} if claim is None else {claim: claim}
    return SpecPod(PodUid("u-new"), "new", "ml", (main,), resource_claims=named)


steps = st.lists(
    st.one_of(
        st.sampled_from([Restart(), Reboot(), Drain()]),
        st.sampled_from([GPU, NIC, DRIVER]).map(WithoutPlugin),
        st.builds(SetDevices, st.sampled_from([GPU, NIC]), st.sampled_from([0, 1, 5, "2@0,1"])),
        st.sampled_from(["1.25", "1.30", "1.33", "1.34", "1.37"]).map(Configure),
        st.sampled_from([None, "none", "restricted"]).map(lambda each: Configure(policy=each)),
        st.just(Configure(options={"max-allowable-numa-nodes": "x"})),
    ),
    min_size=1,
    max_size=4,
)
admissions = st.none() | st.builds(
    new_pod, st.sampled_from([GPU, UNKNOWN]), st.integers(0, 3), st.sampled_from([None, "gpu", "x"])
)


@examples(0.5)
@given(snapshots(), steps, admissions, st.integers(0, 4))
def test_each_bad_pod_is_named_and_each_loss_gives_status_1(
    node: Snapshot, steps: list[Step], new: SpecPod | None, at: int
) -> None:
    if new is not None:
        steps = [*steps[:at], Admit(new), *steps[at:]]
    try:
        result = rehearse(node, steps, repeat=6, permuted=3)
    except RehearsalError:  # the driver is not known, because no claim is
        reject()
    check(result)


def check(result: Rehearsal) -> None:
    texts = [each.text for each in result.statements]
    has_kubelet = any(text.startswith(KUBELET) for text in texts)
    for pod in result.pods:
        is_bad = any(outcome.is_bad for outcome in pod.outcomes)
        named = [text for text in texts if pod.name in text and is_loss(text)]
        assert is_bad <= (has_kubelet or bool(named)), (pod, texts)
        assert bool(named) <= is_bad, (pod, texts)
        for resource in {each for outcome in pod.outcomes for each in outcome.missing} - {DRIVER}:
            assert any(resource in text for text in named), (resource, texts)
    assert result.loses_pods == (has_kubelet or any(map(is_loss, texts))), texts
    assert result.loses_pods == (result.bad_orders > 0)
    assert all(each.advice and each.basis for each in result.statements)
    assert ("none would be lost" in report.summary(result)) <= (not has_kubelet)


def is_loss(text: str) -> bool:
    """True if a statement says that a pod is lost or without devices."""
    words = " is rejected", " waits: ", "but no devices of ", "get no devices of their claims"
    return any(word in text for word in words)
