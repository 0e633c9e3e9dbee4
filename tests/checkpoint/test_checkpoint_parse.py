"""Parsing as in Go, and one-line errors for invalid files."""

import pickle
import re

import pytest

from checkpoint import (
    Checkpoint,
    CheckpointCorrupt,
    CheckpointError,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointWriteError,
    ChecksumMismatch,
    PodDevicesEntry,
    dumps,
    loads,
)
from checkpoint.decode import Problem

ENTRY = PodDevicesEntry("u", "c", "vendor.com/r", {0: ("a",)}, b"\x01")
ONE = Checkpoint((ENTRY,), {"vendor.com/r": ("a", "b")})
TEXT = dumps(ONE)


def entry(**fields: str) -> bytes:
    """Create a file with one entry from JSON texts."""
    inner = ",".join(f'"{name}":{text}' for name, text in fields.items())
    return f'{{"Data":{{"PodDeviceEntries":[{{{inner}}}]}},"Checksum":0}}'.encode()


def read(data: bytes) -> Checkpoint:
    return loads(data, verify=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"Data"', b' {\r\n\t"Data" '),
        (b"}", b"}\n"),
        (b'"PodUID"', b'"poduid"'),
        (b'"Checksum"', b'"CHEC\\u212aSUM"'),
        (b'"RegisteredDevices"', b'"regi\xc5\xbfteredDevices"'),
        (b'"PodUID"', b'"Later":{"a":[1.5e3,null,true]},"PodUID"'),
        (b'{"Data"', b'{"Huge":1' + b"0" * 5000 + b',"Data"'),
        (b'"u"', b'"\\u0075"'),
        (b'"0":', b'"+00":'),
        (b'"AQ=="', b'"A\\nQ=\\r="'),
        (b'"AQ=="', b'"AR=="'),
    ],
)
def test_equivalent_json_is_read_alike(old, new):
    altered = TEXT.replace(old, new, 1)
    assert altered != TEXT
    assert loads(altered) == ONE


def test_order_of_fields_does_not_matter():
    data, checksum = TEXT[1:-1].rsplit(b",", 1)
    assert loads(b"{" + checksum + b"," + data + b"}") == ONE


def test_null_and_absent_are_the_zero_value():
    zero = PodDevicesEntry("", "", "", None, None)
    for text in (b"null", b"{}", b'{"Data":null,"Checksum":null}', b'{"Data":{}}'):
        assert read(text) == Checkpoint((), {})
    null_lists = b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null}}'
    assert read(null_lists) == Checkpoint(None, None)
    assert read(entry()) == Checkpoint((zero,), {})
    assert read(b'{"Data":{"PodDeviceEntries":[null]}}') == Checkpoint((zero,), {})
    nulls = dict.fromkeys(
        ("PodUID", "ContainerName", "ResourceName", "DeviceIDs", "AllocResp"), "null"
    )
    assert read(entry(**nulls)) == Checkpoint((zero,), {})
    found = read(entry(DeviceIDs='{"0":null,"1":[null]}', AllocResp='""')).entries
    assert found == (PodDevicesEntry("", "", "", {0: None, 1: ("",)}, b""),)


def test_lone_surrogates_become_replacement_characters():
    text = r'"\ud83d\ude00 \ud83d \ude00\ud83d \ud83d\ud83d\ude00"'
    (found,) = read(entry(PodUID=text)).entries or ()
    assert found.pod_uid == "\U0001f600 \ufffd \ufffd\ufffd \ufffd\U0001f600"
    names = read(b'{"Data":{"RegisteredDevices":{"\\ud800":null}}}').registered_devices
    assert names == {"\ufffd": None}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is blank"),
        (b"\x00" * 512, "not JSON at character 0"),
        (b"\xef\xbb\xbf" + TEXT, "not JSON at character 0"),
        (TEXT + b"\x00", f"not JSON at character {len(TEXT)}: Extra data"),
        (TEXT + TEXT, f"not JSON at character {len(TEXT)}: Extra data"),
        (TEXT[:50], "not JSON at character"),
        (b'{"Da\n', "not JSON at character 4: Invalid control character: the file is truncated"),
        (b'{"Da', "not JSON at character 1: Unterminated string: the file is truncated"),
        (TEXT.replace(b'"u"', b'"\xff"'), "not UTF-8 at byte 40 of 207"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"Later":' * 100_000, "nested too deeply"),
        (b"[]", "the file: expected an object, found a list"),
        (b'"x"', "the file: expected an object, found a string"),
        (b'{"Data":5}', "Data: expected an object, found a number"),
        (b'{"Data":NaN}', "invalid value NaN"),
        (b'{"Data":-Infinity}', "invalid value -Infinity"),
        (b'{"Data":{},"Data":{}}', 'duplicate key "Data"'),
        (b'{"Data":{},"data":{}}', "the file: duplicate field Data"),
        (b'{"Data":{"PodDeviceEntries":{}}}', "Data.PodDeviceEntries: expected a list"),
        (b'{"Data":{"PodDeviceEntries":[1]}}', "Data.PodDeviceEntries[0]: expected an object"),
        (b'{"Data":{"RegisteredDevices":[]}}', "Data.RegisteredDevices: expected an object"),
        (
            b'{"Data":{"RegisteredDevices":{"r":"a"}}}',
            'Data.RegisteredDevices["r"]: expected a list',
        ),
        (
            b'{"Data":{"RegisteredDevices":{"r":[1]}}}',
            'Data.RegisteredDevices["r"]: expected a string',
        ),
        (entry(PodUID="7"), "Data.PodDeviceEntries[0].PodUID: expected a string"),
        (entry(ContainerName="true"), "ContainerName: expected a string, found a boolean"),
        (entry(ResourceName="[]"), "ResourceName: expected a string, found a list"),
        (
            entry(DeviceIDs='["a"]'),
            "kubelets before v1.20: later kubelets, except v1.22",
        ),
        (entry(DeviceIDs='{"x":[]}'), 'invalid NUMA node "x"'),
        (entry(DeviceIDs='{"":[]}'), 'invalid NUMA node ""'),
        (entry(DeviceIDs='{"1_0":[]}'), 'invalid NUMA node "1_0"'),
        (entry(DeviceIDs='{"\u0661":[]}'), "invalid NUMA node"),
        (entry(DeviceIDs='{"9223372036854775808":[]}'), "invalid NUMA node"),
        (entry(DeviceIDs='{"%s":[]}' % ("9" * 5000)), "invalid NUMA node"),
        (entry(DeviceIDs='{"1":[],"01":[]}'), "duplicate NUMA node"),
        (entry(AllocResp="{}"), "AllocResp: expected a string, found an object"),
        (entry(AllocResp='"A"'), "AllocResp: expected base64"),
        (entry(AllocResp='"AA=A"'), "AllocResp: expected base64"),
        (entry(AllocResp='"AAAA===="'), "AllocResp: expected base64"),
        (entry(AllocResp='"AA-_"'), "AllocResp: expected base64"),
        (entry(AllocResp='"\u00e9AAA"'), "AllocResp: expected base64"),
        (b'{"Checksum":"1"}', "Checksum: expected a number, found a string"),
        (b'{"Checksum":1.0}', "invalid Checksum 1.0: expected a whole number of 64 bits"),
        (b'{"Checksum":1e3}', "invalid Checksum 1e3: expected"),
        (b'{"Checksum":-1}', "invalid Checksum -1: expected"),
        (b'{"Checksum":18446744073709551616}', "invalid Checksum 18446744073709551616: expected"),
        (b'{"Checksum":' + b"9" * 5000 + b"}", "expected a whole number of 64 bits"),
    ],
)
def test_invalid_files(data, problem):
    with pytest.raises(CheckpointCorrupt) as caught:
        loads(data, source="/some/file")
    message = str(caught.value)
    assert message.startswith("/some/file: ")
    assert re.search(rf"(?<!\w){re.escape(problem)}", message)
    assert message.endswith("; restore a good copy, or move it away to start without a checkpoint")
    assert "\n" not in message
    assert len(message) < 300
    assert not isinstance(caught.value, ChecksumMismatch)


@pytest.mark.parametrize(("length", "told"), [(60, "k" * 60), (61, "k" * 60 + "\\u2026")])
def test_long_key_is_shortened_in_errors(length, told):
    data = b'{"Data":{"RegisteredDevices":{"%s":5}}}' % (b"k" * length)
    with pytest.raises(CheckpointCorrupt) as caught:
        loads(data)
    assert f'Data.RegisteredDevices["{told}"]: expected a list' in str(caught.value)


def test_altered_data_is_a_checksum_mismatch():
    altered = TEXT.replace(b'"a"', b'"z"')
    with pytest.raises(ChecksumMismatch) as caught:
        loads(altered)
    error = caught.value
    assert f'"Checksum":{error.found}}}'.encode() in TEXT
    assert loads(altered.replace(b"%d" % error.found, b"%d" % error.expected)) == read(altered)
    assert f"has checksum {error.found}, but its data has checksum {error.expected}" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        CheckpointNotFound("/a"),
        CheckpointUnreadable("/a", "why"),
        CheckpointCorrupt("what", "/a"),
        ChecksumMismatch(1, 2, "/a"),
        ChecksumMismatch(1, None, "/a"),
        CheckpointWriteError("/a", "why", True),
    ],
)
def test_errors_can_be_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert isinstance(error, CheckpointError)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_problem_is_its_text():
    problem = Problem("empty", 7)
    assert (str(problem), problem.position) == ("empty", 7)
