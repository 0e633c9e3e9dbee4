"""The package ``checkpoint`` compared with the kubelet's own code."""

import base64
import json
import re
import subprocess

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from checkpoint import Checkpoint, CheckpointCorrupt, PodDevicesEntry, checksum, dumps, loads
from tests.strategies import examples

# Characters that Go and Python encode differently in JSON are frequent.
texts = st.text(
    st.sampled_from('ab-0 "\\<>&/\x00\n\b\x7f\u2028\u2029\u00e9\ufffd\U0001f600')
    | st.characters(exclude_categories=["Cs"]),
    max_size=12,
)
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
checkpoints = st.builds(
    Checkpoint,
    st.none() | st.lists(entries, max_size=3).map(tuple),
    st.none() | st.dictionaries(texts, ids, max_size=4),
)


@pytest.fixture(scope="module")
def original(checkpointread):
    """Function that sends a request to the kubelet's code and returns the response."""
    with subprocess.Popen(
        [checkpointread, "lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def query(request):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield query
        process.stdin.close()


def as_go(checkpoint):
    def entry(e):
        response = e.alloc_resp
        return {
            "PodUID": e.pod_uid,
            "ContainerName": e.container_name,
            "ResourceName": e.resource_name,
            "DeviceIDs": None if e.device_ids is None else named(e.device_ids),
            "AllocResp": None if response is None else base64.b64encode(response).decode(),
        }

    def named(lists):
        return {str(name): None if found is None else list(found) for name, found in lists.items()}

    found, registered = checkpoint.entries, checkpoint.registered_devices
    return {
        "entries": None if found is None else [entry(e) for e in found],
        "registered_devices": None if registered is None else named(registered),
    }


def file_request(text):
    return {"file_base64": base64.b64encode(text).decode()}


@examples(3)
@given(checkpoints)
def test_written_file_equals_file_of_kubelet(original, checkpoint):
    assert dumps(checkpoint).decode() == original(as_go(checkpoint))["file"]


@given(checkpoints)
def test_kubelet_reads_written_file(original, checkpoint):
    assert original(file_request(dumps(checkpoint))) == as_go(checkpoint)


edits = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.sampled_from([b"", b" ", b"\n", b"null", b"{}", b"0", b"A", b"a", b'"', b",", b"\xff"]),
        st.booleans(),
    ),
    max_size=3,
)


def edited(text, changes):
    """Insert bytes, replace bytes, or (with no bytes) swap the case of a letter."""
    for place, piece, replace in changes:
        at = place % (len(text) + 1)
        if not piece:
            text = text[:at] + text[at : at + 1].swapcase() + text[at + 1 :]
        else:
            text = text[:at] + piece + text[at + replace :]
    return text


# Without one of these keys, kubelet and package differ; a separate test covers that.
TOP_KEYS = (b'"data"', b'"poddeviceentries"', b'"registereddevices"', b'"checksum"')
ENTRY = PodDevicesEntry("u", "c", "v.com/r", {0: ("d",)}, b"x")
SMALL = Checkpoint((ENTRY,), {"v.com/r": ("d",)})


@examples(3)
@example(SMALL, [])
@example(SMALL, [(2, b"", False)])
@given(checkpoints, edits)
def test_edited_file_is_read_as_by_kubelet_or_rejected(original, checkpoint, changes):
    text = edited(dumps(checkpoint), changes)
    assume(all(key in text.lower() for key in TOP_KEYS))
    expected = original(file_request(text))
    try:
        loaded = loads(text)
    except CheckpointCorrupt as problem:
        # The package is stricter in two cases: Go accepts invalid UTF-8 and duplicate keys.
        strict = re.search("UTF-8|twice|duplicate", str(problem))
        assert "error" in expected or strict, problem
    else:
        assert expected == as_go(loaded)


@pytest.mark.parametrize("data", ["", '"Data":{},', '"Data":{"PodDeviceEntries":null},'])
def test_absent_lists_are_empty_for_both(original, data):
    registered = {}
    entries = None if "null" in data else ()
    checkpoint = Checkpoint(entries, registered)
    text = f'{{{data}"Checksum":{checksum(checkpoint)}}}'.encode()
    assert original(file_request(text)) == as_go(checkpoint)
    assert loads(text) == checkpoint


def test_wrong_checksum_is_corrupt_for_both(original):
    text = dumps(SMALL).replace(b'"u"', b'"v"')
    assert original(file_request(text))["error"]["kind"] == "corrupt"
    with pytest.raises(CheckpointCorrupt):
        loads(text)
