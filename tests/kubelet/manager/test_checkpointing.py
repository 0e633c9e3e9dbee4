"""The ledger as checkpoint entries, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import checkpoint
from checkpoint import PodDevicesEntry
from devicemanager.core.ids import ContainerName, DeviceId, PodUid
from devicemanager.core.ledger import AllocatedDevices, Ledger
from devicemanager.kubelet.manager.checkpointing import pod_entries, restore
from tests.helpers import entries
from tests.strategies import GPU, NIC, RESOURCES

names = st.sampled_from("abcdef").map(DeviceId)
holdings = st.builds(
    AllocatedDevices,
    st.dictionaries(
        st.sampled_from([-1, 0, 1]),
        st.lists(names, unique=True, max_size=3).map(lambda ids: tuple(sorted(ids))),
        max_size=2,
    ).map(lambda found: dict(sorted(found.items()))),
    # A map of environment variables, and no response.
    st.none() | st.sampled_from([b"", b"\n\x06\n\x01A\x12\x011"]),
)
pods_held = st.dictionaries(
    st.sampled_from("pqr").map(PodUid),
    st.dictionaries(
        st.sampled_from(["app", "side"]).map(ContainerName),
        st.dictionaries(st.sampled_from(RESOURCES), holdings, min_size=1),
        min_size=1,
    ),
)


def test_entry_with_an_unreadable_response_is_dropped():
    entry = checkpoint.PodDevicesEntry("p", "app", GPU, {-1: ("a",)}, b"\xff")
    readable = checkpoint.PodDevicesEntry("q", "app", GPU, {-1: ("b",)}, b"")
    ledger = Ledger()
    restore(ledger, (entry, readable))
    assert list(ledger.pods()) == ["q"]


@given(pods_held)
def test_ledger_survives_a_round_trip_through_the_file(held):
    # Reading the file again gives an equal ledger, and that an equal file.
    ledger = Ledger()
    ledger.restore(
        (pod, container, resource, holding)
        for pod, by_container in held.items()
        for container, by_resource in by_container.items()
        for resource, holding in by_resource.items()
    )
    text = rendered(ledger)
    again = Ledger()
    restore(again, checkpoint.loads(text).entries or ())
    again.self_check()
    assert entries(again) == held
    assert rendered(again) == text


def rendered(ledger: Ledger) -> bytes:
    rows = [entry for pod in ledger.pods() for entry in pod_entries(pod, ledger.pod(pod))]
    return checkpoint.dumps(checkpoint.Checkpoint(tuple(rows) or None, {}))


def test_entries_follow_containers_and_are_sorted_by_resource():
    one = AllocatedDevices({0: (DeviceId("a"),)}, b"answer")
    rows = pod_entries(
        PodUid("p"),
        {ContainerName("z"): {NIC: one, GPU: one}, ContainerName("a"): {GPU: one}},
    )
    assert [(row.container_name, row.resource_name) for row in rows] == [
        ("z", GPU), ("z", NIC), ("a", GPU),
    ]  # fmt: skip
    assert rows[0] == PodDevicesEntry("p", "z", GPU, {0: ("a",)}, b"answer")


def test_missing_devices_are_restored_as_none():
    ledger = Ledger()
    restore(
        ledger,
        [
            PodDevicesEntry("p", "app", GPU, None, None),
            PodDevicesEntry("p", "side", GPU, {0: None}, b""),
        ],
    )
    assert ledger.allocated(PodUid("p"), ContainerName("app"), GPU) == frozenset()
    assert ledger.allocated(PodUid("p"), ContainerName("side"), GPU) == frozenset()
    ledger.self_check()
