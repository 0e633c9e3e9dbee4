"""The file dra_manager_state: exact text, what is read, and what is refused with one line."""

from __future__ import annotations

import json
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import checkpoint
from checkpoint.dra import (
    STATE_NAME,
    ClaimState,
    Device,
    DriverState,
    FindingKind,
    State,
    StateDocument,
    StateStore,
    checksum,
    dumps,
    inconsistencies,
    kubelet_error,
    loads,
)
from checkpoint.dra.gojson import syntax_error

EXAMPLE = State(
    (
        ClaimState(
            "default",
            "example",
            "067798be-454e-4be4-9047-1aa06aea63f7",
            frozenset({"139cdb46-f989-4f17-9561-ca10cfb509a6"}),
            {
                "test-driver.cdi.k8s.io": DriverState(
                    (
                        Device(
                            "worker-1",
                            "dev-1",
                            None,
                            ("test request",),
                            ("example.com/example=cdi-example",),
                        ),
                    )
                )
            },
        ),
    )
)


def file(data: object, total: int | None = None) -> bytes:
    """Return a file around an inner text or value, with the right checksum by default."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return json.dumps(
        {"Data": text, "Checksum": crc32(text.encode()) if total is None else total}
    ).encode()


def test_checksums_of_known_files():
    assert checksum(EXAMPLE, share_ids=False) == 1656016162
    assert checksum(EXAMPLE) == 2570581864
    assert checksum(State()) == 4010664294
    assert checksum(State(())) == 2361995144


def test_text_of_a_known_file():
    inner = (
        r"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\","
        r"\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\","
        r"\"ClaimName\":\"example\",\"Namespace\":\"default\","
        r"\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},"
        r"\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\","
        r"\"DeviceName\":\"dev-1\",\"RequestNames\":[\"test request\"],"
        r"\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}"
    )
    text = f'{{"Data":"{inner}","Checksum":1656016162}}'
    assert dumps(EXAMPLE, share_ids=False).decode() == text
    assert loads(text.encode()) == EXAMPLE


def test_characters_that_go_escapes_are_escaped_in_both_layers():
    odd = State((ClaimState("<&>", 'a"\\', "\u2028é\t"),))
    text = dumps(odd).decode()
    assert r"\"ClaimUID\":\"\\u2028é\\t\"" in text
    assert r"\"Namespace\":\"\\u003c\\u0026\\u003e\"" in text
    assert loads(text.encode()) == odd


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.none() | st.lists(texts, max_size=2).map(tuple)
devices = st.builds(Device, texts, texts, st.none() | texts, names, names)
drivers = st.builds(
    DriverState,
    st.none() | st.lists(devices, max_size=3).map(tuple),
    st.lists(texts, max_size=2).map(tuple),
)
claims = st.builds(
    ClaimState,
    texts,
    texts,
    texts,
    st.frozensets(texts, max_size=3),
    st.dictionaries(texts, drivers, max_size=3),
)
states = st.builds(State, st.none() | st.lists(claims, max_size=4).map(tuple))


@given(states)
def test_written_state_is_read_back(state):
    data = dumps(state)
    assert loads(data) == state
    assert kubelet_error(data) is None
    outer = json.loads(data)
    assert outer["Checksum"] == crc32(outer["Data"].encode()) == checksum(state)


def changing(pool):
    """Return states that share claims, as those of a kubelet do."""
    chosen = st.lists(st.sampled_from(pool), max_size=6).map(tuple)
    return st.lists(st.none() | chosen, min_size=1, max_size=6)


@given(st.lists(claims, min_size=1, max_size=5).flatmap(changing))
def test_document_renders_each_state_as_dumps_does(several):
    document = StateDocument()
    for each in several:
        assert document.render(each) == dumps(State(each))


def test_document_renders_only_claims_that_changed():
    rendered = []

    class Counted:
        pods, drivers, namespace, uid = frozenset(), {}, "default", "u"

        def __init__(self, name):
            self._name = name

        @property
        def name(self):
            rendered.append(self._name)
            return self._name

    first, second, third = map(Counted, "abc")
    document = StateDocument()
    for state in [(first, third), (first, second, third), None, (second, third), (second,)]:
        document.render(state)
    assert rendered == ["a", "c", "b"]


@given(
    st.binary(max_size=60)
    | states.map(dumps).flatmap(lambda data: st.integers(0, len(data)).map(lambda end: data[:end]))
)
def test_damaged_bytes_are_one_line(data):
    try:
        loads(data)
    except checkpoint.CheckpointError as error:
        assert "\n" not in str(error)
        assert str(error).startswith("dra_manager_state: ")
        assert kubelet_error(data) is not None


# What a kubelet reads.


@pytest.mark.parametrize(
    "data", [b"{}", b"null", b' {"Later": 1}\n', dumps(State()), dumps(State(()))]
)
def test_empty_files(data):
    assert not loads(data).claims
    assert kubelet_error(data) is None


def test_keys_match_in_any_case_and_unknown_ones_are_ignored():
    inner = {
        "KIND": "Other",
        "claiminfostatelist": [
            {"claimuid": "u", "CLAIMNAME": "c", "Later": [1], "PodUIDs": {"p": {}}}
        ],
    }
    data = file(inner).replace(b'"Data"', b'"data"').replace(b'"Checksum"', b'"checkSum"')
    assert loads(data).claims == (ClaimState("", "c", "u", frozenset({"p"})),)


@pytest.mark.parametrize(
    ("data", "said", "kubelets"),
    [
        (b"", "the file is empty", ("file", "unexpected end of JSON input")),
        (
            b"hello",
            "not JSON at character 0",
            ("file", "invalid character 'h' looking for beginning of value"),
        ),
        (
            b"{}x",
            "not JSON at character 2",
            ("file", "invalid character 'x' after top-level value"),
        ),
        (file("{}", 1), "has checksum 1, but its data", ("file", "checkpoint is corrupted")),
        (file(""), "Data is empty", ("data", "unexpected end of JSON input")),
        (
            file("nonsense"),
            "Data: not JSON at character 0",
            ("data", "invalid character 'o' in literal null (expecting 'u')"),
        ),
        (
            b'{"Checksum":"7"}',
            "invalid Checksum of another type",
            (
                "file",
                "json: cannot unmarshal string into Go struct field Checkpoint.Checksum "
                "of type uint32",
            ),
        ),
        (
            b'{"Checksum":4294967296}',
            "invalid Checksum 4294967296",
            (
                "file",
                "json: cannot unmarshal number 4294967296 into Go struct field "
                "Checkpoint.Checksum of type uint32",
            ),
        ),
        (
            b'{"Data":{}}',
            "Data: expected a string",
            (
                "file",
                "json: cannot unmarshal object into Go struct field Checkpoint.Data of type string",
            ),
        ),
        (
            b'{"version":"v1","entries":[],"checksum":0}',
            "format of kubelets before v1.32",
            ("file", "checkpoint is corrupted"),
        ),
        (
            file({"ClaimInfoStateList": {}}),
            "ClaimInfoStateList: expected a list",
            (
                "data",
                "json: cannot unmarshal: ClaimInfoStateList: expected a list, found an object",
            ),
        ),
        (b"\xff", "not UTF-8", ("file", "invalid character 'ÿ' looking for beginning of value")),
        (b'{"Data":"a","Data":"b"}', "duplicate key", ("file", "checkpoint is corrupted")),
    ],
)
def test_refused_files(data, said, kubelets):
    with pytest.raises(checkpoint.CheckpointCorrupt) as caught:
        loads(data, source="here")
    assert said in str(caught.value) and str(caught.value).startswith("here: ")
    assert kubelet_error(data) == kubelets


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"ClaimUID": 7},
        {"PodUIDs": []},
        {"PodUIDs": {"p": 7}},
        {"DriverState": {"d": []}},
        {"DriverState": {"d": {"Devices": {}}}},
        {"DriverState": {"d": {"Devices": [7]}}},
        {"DriverState": {"d": {"Devices": [{"ShareID": 7}]}}},
        {"DriverState": {"d": {"Devices": [{"CDIDeviceIDs": "x"}]}}},
        {"DriverState": {"d": {"skipNodeOperations": 7}}},
    ],
)
def test_entries_of_a_wrong_type_are_named(entry):
    with pytest.raises(checkpoint.CheckpointCorrupt, match=r"ClaimInfoStateList\[0\]"):
        loads(file({"ClaimInfoStateList": [entry]}))


def test_checksum_can_be_ignored():
    assert loads(file({"ClaimInfoStateList": []}, 7), verify=False) == State(())


@pytest.mark.parametrize("inner", [False, True])
def test_deep_nesting_is_one_line(inner):
    deep = "[" * 100_000
    data = file(deep) if inner else deep.encode()
    with pytest.raises(checkpoint.CheckpointCorrupt, match=r"nested too deeply|not JSON"):
        loads(data)
    assert kubelet_error(data) == ("data" if inner else "file", "exceeded max depth")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 2}', "invalid character '2' after object key:value pair"),
        ("{1}", "invalid character '1' looking for beginning of object key string"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("-a", "invalid character 'a' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("01", "invalid character '1' after top-level value"),
        ("'", "invalid character '\\'' looking for beginning of value"),
        ("\x00", "invalid character '\\x00' looking for beginning of value"),
        ("\x80", "invalid character 'Â' looking for beginning of value"),
        # A text that ends inside a token.
        ('{"a":[tru', "invalid character ' ' in literal true (expecting 'e')"),
        ("1e", "invalid character ' ' in exponent of numeric literal"),
        ("-", "invalid character ' ' in numeric literal"),
        ('"\\u00', "invalid character ' ' in \\u hexadecimal character escape"),
        ('"a\\', "invalid character ' ' in string escape code"),
        ('[{"a":[]},{},-1.5e+3,"\\u00e4\\n",true,false,null,0]', None),
        ("0", None),
        ("[ ]", None),
    ],
)
def test_go_syntax_errors(text, error):
    assert syntax_error(text.encode()) == error


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_has_no_syntax_error(value):
    assert syntax_error(json.dumps(value).encode()) is None


@given(st.text(st.sampled_from(' {}[]",:-.0123eE+truefalsn\\'), max_size=12))
def test_syntax_error_agrees_with_a_json_parser(text):
    try:
        json.loads(text)
        valid = True
    except ValueError:
        valid = False
    assert (syntax_error(text.encode()) is None) is valid


# The store and the consistency.


def test_store(tmp_path):
    store = StateStore(tmp_path)
    with pytest.raises(checkpoint.CheckpointNotFound):
        store.load_state()
    store.write(dumps(EXAMPLE))
    assert store.path.name == STATE_NAME
    assert store.load_state() == EXAMPLE
    store.write(b"{")
    with pytest.raises(checkpoint.CheckpointCorrupt, match=str(store.path)):
        store.load_state()
    assert store.set_aside().name == "dra_manager_state.corrupt-1"


def claim(name: str, *devices: Device, pods: frozenset[str] = frozenset({"p"})) -> ClaimState:
    return ClaimState("default", name, f"{name}-uid", pods, {"d": DriverState(devices)})


ONE, SHARE, OTHER = Device("pool", "1"), Device("pool", "1", "s"), Device("pool", "1", "t")


@pytest.mark.parametrize(
    ("claims", "kinds"),
    [
        ([claim("a", ONE), claim("b", ONE)], [FindingKind.SHARED_DEVICE]),
        ([claim("a", SHARE), claim("b", OTHER)], []),
        ([claim("a", SHARE), claim("b", SHARE)], [FindingKind.SHARED_DEVICE]),
        ([claim("a", ONE), claim("b", SHARE)], [FindingKind.SHARED_DEVICE]),
        ([claim("a", ONE, ONE)], [FindingKind.REPEATED_DEVICE]),
        ([claim("a", SHARE, SHARE)], [FindingKind.REPEATED_DEVICE]),
        ([claim("a"), claim("a")], [FindingKind.REPEATED_CLAIM]),
        ([claim("a", pods=frozenset())], [FindingKind.NO_PODS]),
        ([claim("a", ONE), claim("b")], []),
    ],
)
def test_inconsistencies(claims, kinds):
    found = inconsistencies(claims)
    assert [each.kind for each in found] == kinds
    assert all("default/a" in each.claims and "default/a" in each.text for each in found)


def test_empty_state_is_consistent():
    assert inconsistencies(None) == ()
