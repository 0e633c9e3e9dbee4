"""Reading damaged files, and inconsistencies in valid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import (
    Checkpoint,
    CheckpointCorrupt,
    ChecksumMismatch,
    FindingKind,
    PodDevicesEntry,
    checksum,
    dumps,
    inconsistencies,
    inspect,
    loads,
)

GPU = "vendor.com/gpu"


def entry(pod: str, *ids: str, container: str = "main", resource: str = GPU) -> PodDevicesEntry:
    return PodDevicesEntry(pod, container, resource, {0: ids}, b"\x01")


ENTRIES = tuple(entry(f"u{number}", f"g{number}") for number in range(3))
WHOLE = Checkpoint(ENTRIES, {GPU: ("g0", "g1", "g2"), "vendor.com/nic": None})
DATA = dumps(WHOLE)


def test_valid_file_is_read_completely():
    found = inspect(DATA)
    assert found.checkpoint == WHOLE
    assert found.problems == ()
    assert found.is_complete
    assert found.found == found.expected == checksum(WHOLE)


def test_wrong_checksum_hides_nothing():
    altered = DATA.replace(b'"g1"', b'"g7"')
    found = inspect(altered)
    assert found.checkpoint == loads(altered, verify=False)
    assert found.is_complete
    assert found.found == checksum(WHOLE)
    (problem,) = found.problems
    assert problem == (
        f"the file has checksum {found.found}, but its data has checksum {found.expected}: "
        "the file was altered"
    )


@pytest.mark.parametrize("checksum_text", [b"", b',"Checksum":null'])
def test_missing_checksum_is_named(checksum_text):
    data = DATA[: DATA.rindex(b',"Checksum"')] + checksum_text + b"}"
    found = inspect(data)
    assert (found.checkpoint, found.is_complete, found.found) == (WHOLE, True, None)
    text = f"the file has no checksum, but its data has checksum {found.expected}: "
    assert found.problems == (text + "the file was altered",)
    with pytest.raises(ChecksumMismatch) as caught:
        loads(data)
    assert (caught.value.problem, caught.value.found) == (*found.problems, None)


def test_checksum_of_0_is_not_missing():
    data = DATA[: DATA.rindex(b":") + 1] + b"0}"
    assert inspect(data).problems[0].startswith("the file has checksum 0, but its data has ")


def test_truncated_file_is_read_up_to_its_end():
    for end in range(len(DATA)):
        found = inspect(DATA[:end])
        assert found.found is None
        assert len(found.problems) == 1
        entries = found.checkpoint.entries or ()
        assert entries == ENTRIES[: DATA[:end].count(b'"AllocResp":"AQ=="}')]
        registered = dict(found.checkpoint.registered_devices or {})
        assert registered.items() <= dict(WHOLE.registered_devices or {}).items()
        assert (GPU in registered) is (end >= DATA.index(b'"g2"],') + 5)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"AQ=="', b'"A"', "invalid Data.PodDeviceEntries[0].AllocResp: expected base64"),
        (b'{"0":["g0"]}', b'["g0"]', "Data.PodDeviceEntries[0].DeviceIDs is a list without NUMA"),
        (b'"PodUID":"u0"', b'"PodUID":1', "Data.PodDeviceEntries[0].PodUID: expected a string"),
        (b'"PodUID":"u0"', b'"PodUID":"u","PodUID":"u"', 'duplicate key "PodUID"'),
    ],
)
def test_invalid_entry_does_not_affect_others(old, new, problem):
    found = inspect(DATA.replace(old, new, 1))
    assert found.checkpoint == Checkpoint(ENTRIES[1:], WHOLE.registered_devices)
    assert not found.is_complete
    (said,) = found.problems
    assert problem in said


def test_invalid_resource_does_not_affect_others():
    found = inspect(DATA.replace(b'["g0","g1","g2"]', b'"g0"', 1))
    assert found.checkpoint == Checkpoint(ENTRIES, {"vendor.com/nic": None})
    assert found.problems == (f'Data.RegisteredDevices["{GPU}"]: expected a list, found a string',)


def test_invalid_utf8_is_reported_and_the_rest_is_read():
    found = inspect(DATA.replace(b'"u1"', b'"u\xff"', 1))
    assert [each.pod_uid for each in found.checkpoint.entries or ()] == ["u0", "u\ufffd", "u2"]
    (problem,) = found.problems
    assert problem.startswith("not UTF-8 at byte ")


@pytest.mark.parametrize("data", [b"", b" ", b"{", b"[]", b"\0" * 9, b'{"Data":5}', b"[" * 10**5])
def test_unreadable_file_has_one_problem(data):
    found = inspect(data)
    assert found.checkpoint == Checkpoint((), {})
    assert len(found.problems) == 1
    assert found.found is None


@given(st.binary(max_size=30), st.integers(0, len(DATA)), st.integers(0, len(DATA)))
def test_inspect_reports_what_loads_raises(noise, start, end):
    data = DATA[:start] + noise + DATA[end:]
    found = inspect(data)
    try:
        loads(data)
    except CheckpointCorrupt as error:
        assert found.problems
        assert error.problem == found.problems[0]
    else:
        assert not found.problems


def test_repeated_keys_take_linear_time():
    # Comparing each key with all others would exceed the time limit of a test.
    many = b",".join(b'"r%d":[]' % number for number in range(100_000))
    data = b'{"Data":{"RegisteredDevices":{%b,"r99999":[]}}}' % many
    with pytest.raises(
        CheckpointCorrupt, match=r'^checkpoint: Data\.RegisteredDevices: duplicate key "r99999"'
    ):
        loads(data)
    assert 'duplicate key "r99999"' in inspect(data).problems[0]


# --- inconsistencies


def findings(*entries: PodDevicesEntry, registered: tuple[str, ...] = (GPU,)):
    saved = Checkpoint(entries, dict.fromkeys(registered, ()))
    return [(each.kind, each.message, each.resource, each.pods) for each in inconsistencies(saved)]


def test_consistent_file_has_no_findings():
    assert findings(*ENTRIES) == []
    assert inconsistencies(Checkpoint(None, None)) == ()
    # An app container reuses an init container's device; null is an empty list.
    assert findings(entry("u", "g", container="init"), entry("u", "g")) == []
    assert findings(PodDevicesEntry("u", "c", GPU, None, None)) == []
    assert findings(PodDevicesEntry("u", "c", GPU, {0: ("g",), 1: ("g",), 2: None}, None)) == []


def test_device_allocated_to_two_pods():
    both = [entry("a", "g0", "g1"), entry("b", "g1"), entry("c", "g1", resource="vendor.com/nic")]
    assert findings(*both, registered=(GPU, "vendor.com/nic")) == [
        (
            FindingKind.HELD_TWICE,
            f"device g1 of {GPU} is allocated to 2 pods: a, b",
            GPU,
            ("a", "b"),
        )
    ]


def test_repeated_entry():
    assert findings(entry("a", "g0"), entry("a", "g1")) == [
        (FindingKind.REPEATED_ENTRY, f"pod a, container main has 2 entries for {GPU}", GPU, ("a",))
    ]


def test_entry_of_an_unregistered_resource():
    assert findings(entry("a", "g0"), entry("b", "g1"), registered=("other",)) == [
        (
            FindingKind.UNREGISTERED_RESOURCE,
            f"{GPU} is not registered, but allocated to: a, b",
            GPU,
            ("a", "b"),
        )
    ]


def test_truncated_file_has_no_findings_about_registered_resources():
    """The registered resources come last in the file, so that a truncated file lacks them."""
    double = (*ENTRIES, entry("other", "g0"))
    whole = dumps(Checkpoint(double, {GPU: ("g0", "g1", "g2")}))
    found = inspect(whole[: whole.index(b'"RegisteredDevices"')])
    assert not found.is_complete
    assert [each.kind for each in found.inconsistencies()] == [FindingKind.HELD_TWICE]
    unregistered = inspect(dumps(Checkpoint(ENTRIES, {})))
    assert [each.kind for each in unregistered.inconsistencies()] == [
        FindingKind.UNREGISTERED_RESOURCE
    ]
