"""Answers of Kubernetes for rare operands, recorded with 1.36.3 and 1.37.2 (cel-go 0.26, 0.29)."""

import pytest

from devicemanager.claims.cel.dra import (
    Attribute,
    CelCompileError,
    CelRuntimeError,
    Device,
    Features,
    Release,
    compile_selector,
)
from devicemanager.claims.cel.limits import Meter, TooMuchWork, check_size
from devicemanager.claims.cel.values import CostExceeded

VERSION = "device.attributes['d'].version"
DEVICE = Device("d", {"version": Attribute("version", "1.2.3"), "name": Attribute("string", "a")})
UNHASHABLE = "internal error: runtime error: hash of unhashable type "


def answer(text, release=Release.V1_37):
    try:
        features = Features(release, list_attributes=True)
        return compile_selector(text, features=features).evaluate(DEVICE)
    except (CelCompileError, CelRuntimeError) as error:
        return str(error).partition("\n")[0].rpartition("compilation failed: ")[2]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        # A sum of quantities has another class in Go, which no quantity equals from the left.
        ("quantity('2').add(1) == quantity('3')", True),
        ("quantity('3') == quantity('2').add(1)", "no such overload"),
        (f"{VERSION} == '1.2.3'", "no such overload"),
        (f"'1.2.3' == {VERSION}", False),
        (f"{VERSION} != '1.2.3'", True),
        # Go panics for keys that it cannot hash, which no operator absorbs.
        (f"{VERSION} in ['1.2.3'] || true", f"{UNHASHABLE}cel.Semver"),
        (f"{{{VERSION}: 1}} == {{}} || true", f"{UNHASHABLE}cel.Semver"),
        (f"{VERSION} in device.attributes['d']", False),
        (
            "[1, 2].sortBy(x, dyn(x) + 'a') == [] || true",
            "internal error: interface conversion: *types.Err is not traits.Lister:"
            " missing method Add",
        ),
        ("9223372036854775807 < 9223372036854775808.0", False),
        ("type(dyn(1u)) == uint && type(dyn(1)) != uint", True),
        ("[1, dyn('a')].size() == 2", "ERROR: <input>:1:8: expected type 'int' but found 'dyn'"),
        ("'%s%s'.format([1, 'a']) == '1a'", True),
        ("'%d'.format([1.5]) == ''", "ERROR: <input>:1:14: error during formatting: decimal"
         " clause can only be used on integers, was given double"),
        ("'%s'.format([b'\\xff']) == ''", 'error during formatting: could not convert argument'
         ' "invalid UTF-8 in bytes, cannot convert to string" to string'),
        ("'a'.matches(dyn('\\\\C'))", "program instantiation failed: error parsing regexp:"
         " invalid escape sequence: `\\C`"),
        ("double('1_0') == 10.0 && double('0x1p-2') == 0.25", True),
        ("device.attributes['d'].name[{1: 2}] == 1", "program instantiation failed: invalid"
         " qualifier type: *types.baseMap"),
        ("cel.bind(b, string, b == b)", "program instantiation failed: reference to undefined"
         " type: b"),
        ("cel.bind(b, 1 / 0, true)", True),
        ("dyn(optional.of(true))", True),
        ("timestamp('2024-01-01T00:00:00Z').getDate('24:00') == 2", True),
        ("timestamp('0001-01-01T00:00:00Z').getSeconds('-03:30') == 0", "not supported: a local"
         " time outside of the years 1 to 9999"),
        ("'aab'.findAll('a*') == ['aa', '']", True),
    ],
)  # fmt: skip
def test_rare_operands(text, want):
    assert answer(text) == answer(text, Release.V1_36) == want


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        ("['a', 'b']", True),
        ("[dyn('a'), dyn('b')]", True),
        ("[dyn('a'), dyn(1)]", "join: invalid input: 1"),
    ],
)
def test_only_strings_are_joined(parts, want):
    assert answer(f"{parts}.join('-') == 'a-b'") == want


def test_limits_are_those_of_the_page():
    """docs/cel.md: cost 1,000,000, elements read 3,000,000, size of a new value 5,000,000."""
    Meter().charge(1_000_000)
    with pytest.raises(CostExceeded):
        Meter().charge(1_000_001)
    check_size(5_000_000)
    with pytest.raises(TooMuchWork, match=r"^not supported: the evaluation takes too much time"):
        check_size(5_000_001)
    full = Meter()
    full.work = 3_000_000 - 2
    full.read(["a"])
    assert full.work == 3_000_000
    full.read("a" * 63)
    for value in ("a" * 64, [], [[]]):
        meter = Meter()
        meter.work = 3_000_000
        with pytest.raises(TooMuchWork):
            meter.read(value)


@pytest.mark.parametrize("value", ["a" * 192, b"a" * 192, ["a", 1], [["a"]], [[], []]])
def test_work_of_a_value_is_the_number_of_its_elements(value):
    meter = Meter()
    meter.read(value)
    # 64 characters count as one element, and each list as one more.
    assert meter.work == (5 if value == [[], []] else 4 if value == [["a"]] else 3)


def test_cost_is_reported_after_each_thousand_units():
    spent = []
    meter = Meter(limit=2500, spend=spent.append)
    for units in (1000, 1, 999, 1, 2, 497):
        meter.charge(units)
    assert spent == [1001, 1002]
    meter.report()
    assert spent == [1001, 1002, 497]
    with pytest.raises(CostExceeded):
        meter.charge(1)


@pytest.mark.parametrize(
    "text",
    [
        # Results of Go's time.Duration.Seconds, strconv.ParseInt and time.ParseDuration.
        "string(duration('1706456525ns')) == '1.7064565250000001s'",
        "string(duration('-1706456525ns')) == '-1.7064565250000001s'",
        "string(duration('0s')) == '0s' && string(duration('-1ns')) == '-0.000000001s'",
        f"int('{'0' * 40}1') == 1 && int('-{'0' * 5000}12') == -12 && int('{'0' * 40}') == 0",
        f"uint('{'0' * 40}1') == 1u",
        f"duration('{'0' * 70}1s') == duration('1s')",
        f"duration('1.{'0' * 70}1s') == duration('1s')",
        "duration('0.3333333333333333333h') == duration('1200s')",
        "duration('0.99999999999999999999999s') == duration('1s')",
    ],
)
def test_conversions_as_in_go(text):
    assert answer(text) is True


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("int('9223372036854775808') == 0", "int"),
        (f"int('{'9' * 40}') == 0", "int"),
        (f"duration(dyn('{'9' * 40}h')) == duration('0')", "google.protobuf.Duration"),
        ("duration(dyn('.s')) == duration('0')", "google.protobuf.Duration"),
    ],
)
def test_conversions_that_go_rejects(text, target):
    assert answer(text).endswith(f"type conversion error from 'string' to '{target}'")


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("dyn(1).orValue(2) == 1", True, "no such overload"),
        ("'abc'.indexOf('', -1) == -1", True, "index out of range: -1"),
        ("'abc'.lastIndexOf('', 9) == 9", True, False),
    ],
)
def test_answers_that_changed_in_1_37(text, old, new):
    assert (answer(text, Release.V1_36), answer(text)) == (old, new)
