"""Repair of damaged checkpoints: everything readable is kept, and nothing is invented."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import Checkpoint, PodDevicesEntry, checksum, dumps, inspect, loads, repair
from checkpoint import without_pods as without

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"


def entry(pod: str, *ids: str, container: str = "main", resource: str = GPU) -> PodDevicesEntry:
    return PodDevicesEntry(pod, container, resource, {0: ids}, b"\x01")


ENTRIES = tuple(entry(f"u{number}", f"g{number}") for number in range(4))
WHOLE = Checkpoint(ENTRIES, {GPU: ("g0", "g1", "g2"), NIC: ("n0",)})
DATA = dumps(WHOLE)


def uids(saved: Checkpoint) -> list[str]:
    return [each.pod_uid for each in saved.entries or ()]


def test_valid_file_is_not_changed():
    spaced = json.dumps(json.loads(DATA), indent=1).encode()
    for data in (DATA, spaced):
        repaired = repair(data)
        assert (repaired.data, repaired.changed, repaired.notes) == (data, False, ())
        assert repaired.checkpoint == WHOLE


def test_wrong_checksum_is_recomputed_with_a_note():
    altered = DATA.replace(b'"g1"]', b'"g7"]', 1)
    repaired = repair(altered)
    assert loads(repaired.data) == loads(altered, verify=False)
    assert repaired.dropped == ()
    (note,) = repaired.notes
    assert note.startswith("the whole file could be read, so it is unknown what was altered")


def test_entries_behind_the_damage_are_kept():
    # A quote in the second entry ends the valid JSON there.
    damaged = DATA.replace(b'"PodUID":"u1"', b'"PodUID":"u"1', 1)
    found = inspect(damaged)
    assert uids(found.checkpoint) == ["u0", "u2", "u3"]
    assert found.checkpoint.registered_devices == WHOLE.registered_devices
    assert found.lost == (f'an entry of pod "u", container "main", resource "{GPU}"',)
    repaired = repair(damaged)
    assert uids(loads(repaired.data)) == ["u0", "u2", "u3"]
    assert repaired.dropped == found.lost


def test_truncated_entry_is_named():
    cut = DATA[: DATA.index(b'"u2"') + 4]
    repaired = repair(cut)
    assert uids(repaired.checkpoint) == ["u0", "u1"]
    assert repaired.dropped == ('an entry of pod "u2"',)
    assert repaired.notes[0].startswith("the registered resources are lost")
    assert repair(DATA[: DATA.index(b'"u2"')]).dropped == ("an entry",)
    nothing_of_it = repair(DATA[: DATA.index(b'"PodUID":"u2"') - 1])
    assert nothing_of_it.dropped == ()


def test_merged_entries_are_separated():
    # As after a write in place: the second entry continues with the start of the list.
    one, two = (f'"PodUID":"u{n}","ContainerName":"main"'.encode() for n in (1, 2))
    damaged = DATA.replace(one + b',"ResourceName"', one + b',"ResourceNamPodDeviceEntries', 1)
    start = damaged.index(b"ResourceNamPodDeviceEntries")
    whole = DATA[DATA.index(b"{" + two) :]
    damaged = damaged[:start] + b'Entries":[' + whole + b"}"
    assert uids(inspect(damaged).checkpoint) == ["u0", "u2", "u3"]


def test_entries_are_found_without_surrounding_structure():
    for old, new in ((b"PodDeviceEntries", b"PodDeviceEn7ries"), (b'"Data"', b'"Dat\xff"')):
        found = inspect(DATA.replace(old, new, 1))
        assert uids(found.checkpoint) == uids(WHOLE)
        assert found.problems


def test_resources_behind_the_damage_are_kept():
    damaged = DATA.replace(b'["g0","g1","g2"]', b'["g0","g1","g2', 1)
    assert inspect(damaged).checkpoint == Checkpoint(ENTRIES, {NIC: ("n0",)})
    three = Checkpoint(ENTRIES, {"a/a": ("x",), "b/b": ("y",), "c/c": None})
    damaged = dumps(three).replace(b'["y"]', b'["y', 1)
    assert inspect(damaged).checkpoint.registered_devices == {"a/a": ("x",), "c/c": None}


@pytest.mark.parametrize(
    ("old", "new", "dropped"),
    [
        (b'"AQ=="', b'"A"', "invalid Data.PodDeviceEntries[0].AllocResp: expected base64"),
        (b'"u0"', b'"u\xff"', "its text is not UTF-8"),
        (b'"g0"', b'"g\xff"', "its text is not UTF-8"),
    ],
)
def test_invalid_entry_is_dropped_and_named(old, new, dropped):
    repaired = repair(DATA.replace(old, new, 1))
    assert uids(loads(repaired.data)) == ["u1", "u2", "u3"]
    (said,) = repaired.dropped
    assert dropped in said


def test_resource_that_is_not_utf8_is_dropped():
    repaired = repair(DATA.replace(b'"n0"', b'"n\xfe"'))
    assert repaired.checkpoint.registered_devices == {GPU: ("g0", "g1", "g2")}
    assert repaired.dropped == (f'resource "{NIC}": its text is not UTF-8',)


def test_null_is_kept():
    whole = (
        PodDevicesEntry("u", "main", GPU, None, None),
        PodDevicesEntry("v", "main", GPU, {0: None}, None),
    )
    data = dumps(Checkpoint((entry("bad", "g0"), *whole), None)).replace(b'"bad"', b'"b\xffd"')
    assert repair(data).checkpoint == Checkpoint(whole, None)
    data = dumps(Checkpoint(whole, {GPU: None, NIC: ("n0",)})).replace(b'"n0"', b'"n\xfe"')
    assert repair(data).checkpoint == Checkpoint(whole, {GPU: None})


def test_replacement_character_in_valid_text_is_kept():
    saved = Checkpoint((entry("u\ufffd", "g\ufffd"),), {f"{GPU}\ufffd": ("g\ufffd",)})
    assert repair(dumps(saved)).dropped == ()
    data = dumps(saved).replace(b'"Checksum":', b'"Checksum":1')
    repaired = repair(data)
    assert (repaired.checkpoint, repaired.dropped) == (saved, ())


def test_replacement_character_is_kept_if_other_bytes_are_damaged():
    saved = Checkpoint((entry("u\ufffd", "g\ufffd"), entry("bad", "g1")), {GPU: ("g\ufffd",)})
    data = dumps(saved).replace(b'"bad"', b'"b\xffd"')
    repaired = repair(data)
    assert uids(repaired.checkpoint) == ["u\ufffd"]
    assert repaired.checkpoint.registered_devices == {GPU: ("g\ufffd",)}
    assert repaired.dropped[0].endswith("its text is not UTF-8")


def test_entry_hidden_in_another_one_is_found():
    # The start of the list was written again in the middle of the first entry.
    whole = dumps(Checkpoint((entry("u0", "g0"),), {}))
    start = whole.index(b'"ResourceName"')
    damaged = whole[: start + 2] + whole[whole.index(b"viceEntries") :]
    repaired = repair(damaged)
    assert repaired.checkpoint.entries == (entry("u0", "g0"),)


@pytest.mark.parametrize("damage", [b"!", b',"Other":1'])
def test_valid_entries_among_damaged_ones_are_kept(damage):
    many = Checkpoint(tuple(entry(f"u{number}", "g") for number in range(100)), {})
    data = dumps(many)
    for number in range(0, 100, 2):
        before = b'"PodUID":"u%d"' % number
        data = data.replace(before, before + (damage if number else b"!"), 1)
    repaired = repair(data)
    assert uids(repaired.checkpoint) == [f"u{number}" for number in range(1, 100, 2)]
    assert len(repaired.dropped) == 50


def test_list_of_an_entry_is_not_a_resource():
    # As after a write in place: the resources continue with the rest of an entry.
    resources, rest = DATA.index(b'"%s"' % NIC.encode()), DATA.index(b'{"PodUID":"u3"')
    repaired = repair(DATA[:resources] + DATA[rest:])
    assert repaired.checkpoint.registered_devices == WHOLE.registered_devices


@pytest.mark.parametrize(("text", "said"), [(b"u\\u0041", '"uA"'), (b"u\\q", '"u\\\\q"')])
def test_lost_names_are_quoted(text, said):
    cut = DATA[: DATA.index(b'"u2"')] + b'"' + text + b'"'
    assert repair(cut).dropped == (f"an entry of pod {said}",)


def test_last_of_repeated_entries_is_kept():
    twice = Checkpoint((entry("u", "g0"), entry("v", "g2"), entry("u", "g1")), {})
    repaired = repair(dumps(twice))
    assert repaired.checkpoint.entries == twice.entries[1:]
    assert repaired.dropped == (
        f'the entry of pod "u", container "main", resource "{GPU}": a later entry replaces it',
    )
    assert repaired.changed and repaired.notes == ()


def test_file_of_an_old_kubelet_is_converted():
    from checkpoint.parse import checksum_v1

    saved = Checkpoint((entry("u", "g0", "g1"),), {GPU: ("g0", "g1")})
    content = json.loads(dumps(saved))
    content["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = ["g0", "g1"]
    content["Checksum"] = checksum_v1(saved)
    repaired = repair(json.dumps(content).encode())
    assert loads(repaired.data) == saved
    assert repaired.dropped == ()
    assert repaired.notes[0].startswith("the file had the format of kubelets before v1.20")


@pytest.mark.parametrize("data", [b"", b" ", b"{", b"[]", b"\0" * 9, b'{"Data":5}', b"[" * 10**5])
def test_empty_file_gives_an_empty_checkpoint(data):
    repaired = repair(data)
    assert repaired.checkpoint == Checkpoint((), {})
    assert len(repaired.problems) == 1 and repaired.notes == ()


def test_deep_nesting_takes_little_time():
    # Reading each unfinished entry up to the end of the file would take hours.
    data = b'{"PodUID":[' + b'{"PodUID":[0,' * 700 + b"0," * 60_000
    assert repair(data * 2).checkpoint == Checkpoint((), {})


@given(st.binary(max_size=12), st.integers(0, len(DATA)), st.integers(0, len(DATA)))
def test_repaired_file_loads_and_needs_no_repair(noise, start, end):
    damaged = DATA[:start] + noise + DATA[end:]
    repaired = repair(damaged)
    if not repaired.changed:
        assert repaired.data == damaged
    saved = loads(repaired.data)
    assert saved == repaired.checkpoint
    # Every complete entry is kept, unless its text was altered.
    for each in ENTRIES:
        text = dumps(Checkpoint((each,), None))
        assert text.count(b"PodUID") == 1
        stands = text[text.index(b'{"PodUID"') : text.index(b'],"Registered')] in damaged
        alone = sum(other.pod_uid == each.pod_uid for other in saved.entries or ())
        if stands and start <= end and b"\xff" not in damaged and b'"' not in noise:
            assert alone == 1
    again = repair(repaired.data)
    assert not again.changed
    assert again.data == repaired.data


def test_without_pods_agrees_with_the_kubelet():
    some = without(WHOLE, ["u0", "u3", "nobody"])
    assert uids(some) == ["u1", "u2"]
    assert some.registered_devices == WHOLE.registered_devices
    none = without(WHOLE, uids(WHOLE))
    assert none.entries is None
    assert b'"PodDeviceEntries":null' in dumps(none)
    assert loads(dumps(none)) == none
    assert checksum(none) != checksum(WHOLE)
