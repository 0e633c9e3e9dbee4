"""Properties of random checkpoints: both texts follow their grammar, a written file is read
back, damage is detected, and a growing document equals the written file.
"""

import base64
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from checkpoint import (
    Checkpoint,
    CheckpointCorrupt,
    Document,
    PodDevicesEntry,
    checksum,
    dumps,
    hashed_text,
    loads,
    render_entry,
)
from checkpoint.fnv import fnv1a_32
from tests.strategies import examples

# Many characters that need escaping, but no surrogates, which cannot be encoded.
texts = st.text(
    st.one_of(st.sampled_from('ab-0 "\\<>&/\x00\n\b\x7f\u2028\u2029\u00e9\ufffd'), st.characters())
).filter(lambda text: not re.search("[\ud800-\udfff]", text))
ids = st.none() | st.lists(texts, max_size=4).map(tuple)
nodes = st.integers(-3, 12) | st.integers(-(2**63), 2**63 - 1)
entries = st.builds(
    PodDevicesEntry,
    texts,
    texts,
    texts,
    st.none() | st.dictionaries(nodes, ids, max_size=4),
    st.none() | st.binary(max_size=20),
)
registered = st.dictionaries(texts, ids, max_size=4)
checkpoints = st.builds(
    Checkpoint, st.none() | st.lists(entries, max_size=4).map(tuple), st.none() | registered
)


def go_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def as_json(checkpoint: Checkpoint) -> dict[str, object]:
    def entry(e: PodDevicesEntry) -> dict[str, object]:
        devices = e.device_ids
        named = None if devices is None else {str(node): devices[node] for node in devices}
        response = e.alloc_resp
        return {
            "PodUID": e.pod_uid,
            "ContainerName": e.container_name,
            "ResourceName": e.resource_name,
            "DeviceIDs": None if named is None else dict(sorted(named.items())),
            "AllocResp": None if response is None else base64.b64encode(response).decode(),
        }

    found, resources = checkpoint.entries, checkpoint.registered_devices
    return {
        "PodDeviceEntries": None if found is None else [entry(e) for e in found],
        "RegisteredDevices": None if resources is None else dict(sorted(resources.items())),
    }


def spew(value: object, kind: str = "") -> str:
    """Format values like go-spew's %#v."""
    if value is None:
        return f"{kind}<nil>"
    if isinstance(value, dict):
        return f"{kind}map[{' '.join(f'{k}:{spew(value[k])}' for k in sorted(value))}]"
    if isinstance(value, tuple | bytes):
        return f"{kind}[{' '.join(map(spew, value))}]"
    if isinstance(value, PodDevicesEntry):
        return (
            f"{{PodUID:{spew(value.pod_uid, '(string)')} "
            f"ContainerName:{spew(value.container_name, '(string)')} "
            f"ResourceName:{spew(value.resource_name, '(string)')} "
            f"DeviceIDs:{spew(value.device_ids, '(checkpoint.DevicesPerNUMA)')} "
            f"AllocResp:{spew(value.alloc_resp, '([]uint8)')}}}"
        )
    return f"{kind}{value}"


@given(checkpoints)
def test_hashed_text_follows_its_grammar(checkpoint):
    found = spew(checkpoint.entries, "([]checkpoint.PodDevicesEntry)")
    resources = spew(checkpoint.registered_devices, "(map[string][]string)")
    expected = (
        f"(checkpoint.checkpointData){{PodDeviceEntries:{found} RegisteredDevices:{resources}}}"
    )
    assert hashed_text(checkpoint).decode() == expected
    assert checksum(checkpoint) == fnv1a_32(expected.encode())


@given(checkpoints)
def test_file_equals_the_output_of_go(checkpoint):
    expected = go_json({"Data": as_json(checkpoint), "Checksum": checksum(checkpoint)})
    assert dumps(checkpoint).decode() == expected


@given(checkpoints)
def test_written_file_is_read_back(checkpoint):
    assert loads(dumps(checkpoint)) == checkpoint


PLAIN = Checkpoint(
    (
        PodDevicesEntry("0f5f", "main", "vendor.com/gpu", {0: ("g0",), -1: ("g1", "<")}, b"\x01"),
        PodDevicesEntry("1a2b", "main", "vendor.com/nic", None, None),
    ),
    {"vendor.com/gpu": ("g0", "g1"), "vendor.com/nic": (), "vendor.com/x": None},
)


def same_or_rejected(damaged: bytes, checkpoint: Checkpoint) -> None:
    try:
        found = loads(damaged, source="the file")
    except CheckpointCorrupt as error:
        assert str(error).startswith("the file: ")
        assert "\n" not in str(error)
    else:
        assert found == checkpoint


def test_every_flipped_bit_is_detected():
    text = dumps(PLAIN)
    for position in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[position] ^= 1 << bit
            same_or_rejected(bytes(damaged), PLAIN)


@given(checkpoints, st.data())
def test_every_damaged_byte_is_detected(checkpoint, data):
    damaged = bytearray(dumps(checkpoint))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    same_or_rejected(bytes(damaged), checkpoint)


def test_truncated_file_is_rejected():
    text = dumps(PLAIN)
    for length in range(len(text)):
        with pytest.raises(CheckpointCorrupt, match="empty" if not length else "not JSON"):
            loads(text[:length])


@given(st.binary(max_size=200))
@example(b"\x00" * 100)
@example(b"null")
@example(b"{}")
def test_garbage_is_rejected(garbage):
    with pytest.raises(CheckpointCorrupt):
        loads(garbage)


class GrowingDocument(RuleBasedStateMachine):
    """A document, and a plain model of its contents."""

    def __init__(self):
        super().__init__()
        self.document = Document()
        self.pods = {}
        self.registered = {}
        self.snapshots = []

    @rule(key=st.integers(0, 9), values=st.lists(entries, max_size=3))
    def put(self, key, values):
        self.document.put(f"{key}", [render_entry(value) for value in values])
        if values:
            self.pods[key] = values
        else:
            self.pods.pop(key, None)

    @rule(first=st.integers(10, 10**6), number=st.integers(1, 150))
    def put_many(self, first, number):
        for key in range(first, first + number):
            entry = PodDevicesEntry(f"u{key}", "c", "vendor.com/r", {0: (f"d{key}",)}, b"")
            self.put(key, [entry])

    @rule(key=st.integers(0, 9))
    def remove(self, key):
        self.document.remove(f"{key}")
        self.pods.pop(key, None)

    @rule(data=st.data())
    def remove_one_that_is_there(self, data):
        if self.pods:
            key = data.draw(st.sampled_from(list(self.pods)))
            self.document.remove(f"{key}")
            del self.pods[key]

    @rule(value=registered)
    def set_registered(self, value):
        self.document.set_registered(value)
        self.registered = value

    @rule(name=texts, value=ids)
    def change_one_resource(self, name, value):
        self.registered = {**self.registered, name: value}
        self.document.set_registered(self.registered)

    @rule()
    def snapshot(self):
        self.snapshots.append((self.document.snapshot(), self.expected()))

    @rule(data=st.data())
    def render_an_old_snapshot(self, data):
        if self.snapshots:
            snapshot, expected = data.draw(st.sampled_from(self.snapshots))
            assert snapshot.render() == expected

    @invariant()
    def renders_as_the_model(self):
        assert self.document.render() == self.expected()

    def expected(self) -> bytes:
        held = tuple(entry for values in self.pods.values() for entry in values)
        return dumps(Checkpoint(held or None, self.registered))


GrowingDocument.TestCase.settings = settings(examples(0.5), stateful_step_count=25)
TestGrowingDocument = GrowingDocument.TestCase
