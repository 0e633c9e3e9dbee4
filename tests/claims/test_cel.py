"""Constraints of structured claims: their meaning, what they read, and hostile ones."""

import importlib

import pytest

from devicemanager.claims import cel
from devicemanager.claims.attributes import AttributeType, AttributeValue
from devicemanager.claims.cel import parsing, semver
from devicemanager.claims.cel.functions import amounts
from devicemanager.claims.errors import ClaimsUnavailable, CompileError, EvaluationError
from devicemanager.core.quantity import parse_quantity
from tests.helpers import growth_of_memory

DEVICE = {
    "model": AttributeValue(AttributeType.STRING, "m1"),
    "numa": AttributeValue(AttributeType.INT, 1),
    "mem": AttributeValue(AttributeType.QUANTITY, parse_quantity("16Gi")),
    "fw": AttributeValue(AttributeType.SEMVER, "1.10.0+build"),
    "pcie-root": AttributeValue(AttributeType.STRING, "r0"),
}


def answer(text, attributes=None):
    expression = cel.compile_v1alpha1(text)
    return expression.matches(DEVICE if attributes is None else attributes)


def test_empty_constraint_is_always_true():
    assert cel.compile_v1alpha1("") is None


@pytest.mark.parametrize(
    "text",
    [
        "device.model == 'm1' && device.numa == 1",
        "device['pcie-root'] == 'r0'",
        "device.numa == 1.0 && device.numa < 1.5 && device.numa == double(device.numa)",
        "device.missing == 'x' || device.model == 'm1'",
        "device.model == 'm1' || device.missing == 'x'",
        "!has(device.missing) && has(device.mem) && 'mem' in device",
        # A string next to a quantity or version is read as one, on either side.
        "device.mem == '16384Mi' && '16384Mi' == device.mem && device.mem != '16G'",
        "device.mem > '16G' && '15Gi' < device.mem && device.mem <= '16Gi' && device.mem >= '16Gi'",
        "device.fw > '1.9.3' && device.fw == '1.10.0+other' && '1.10.1-rc.1' > device.fw",
        "quantity('16Gi') == device.mem && semver('1.10.0') == device.fw",
        "quantity('1Gi') == '1024Mi' && quantity('1Gi') != '1G'",
        "device.mem.compareTo(quantity('16384Mi')) == 0 && device.mem.isLessThan(quantity('17Gi'))",
        "device.fw.isGreaterThan(semver('1.9.0')) && device.fw.compareTo(semver('2.0.0')) == -1",
        "device.fw.major() == 1 && device.fw.minor() == 10 && device.fw.patch() == 0",
        "isQuantity('5Gi') && !isQuantity('5 Gi') && isSemver('1.2.3-a+b') && !isSemver('1.2')",
        # There is no coercion inside lists and `in`, but equal values are equal there, too.
        "!(device.mem in ['16Gi']) && device.mem in [quantity('16384Mi')]",
        "[device.mem] != ['16Gi'] && [device.mem, device.fw] == [quantity('16Gi'), device.fw]",
        "device.fw in [semver('1.10.0')]",
        # Values of different types are unequal, without an error.
        "device.mem != device.fw && device.mem != 16 && device.model != 1 && dyn(true) != dyn(1)",
        "device == device && {'a': 1} != {'a': dyn('1')} && dyn([1, 2]) != dyn([1])",
        "device.exists(key, device[key] == '16Gi' && key == 'mem')",
        "device.model.matches('^m[12]$') && device.model.startsWith('m') && size(device) == 5",
    ],
)  # fmt: skip
def test_constraints_that_match(text):
    assert answer(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "device.model == 'm2'",
        "device.fw >= '1.10.1'",
        "device.fw == '1.10.0-rc.1'",
        "device.numa == '1'",
        "false && device.missing == 1",
    ],
)
def test_constraints_that_do_not_match(text):
    assert answer(text) is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("device.missing == 'x'", "no such key: missing"),
        ("device.model < 1", "no such overload"),
        ("device.numa >= '1'", "no such overload"),
        ("device.mem >= 'plenty'", "quantities must match"),
        ("device.mem == 'plenty'", "quantities must match"),
        ("device.fw >= '1.9'", "No Major.Minor.Patch elements found"),
        ("device.mem < device.fw", "cannot compare a quantity with a version"),
        ("device.mem.major() == 1", "no such overload: major(kubernetes.Quantity)"),
        ("device.mem.text == 'x'", "no such key: text"),
        ("isQuantity(device.mem)", "no such overload: isQuantity(kubernetes.Quantity)"),
        ("quantity('x') == device.mem", "quantities must match"),
        ("device.numa / 0 == 1", "division by zero"),
        ("device.model.matches(device.model + '[')", "error parsing regexp: missing closing ]"),
        ("1", "the result has type int: expected bool"),
        ("device.model", "the result has type string: expected bool"),
        ("'yes'", "the result has type string: expected bool"),
    ],
)
def test_runtime_errors_have_a_reason(text, reason):
    with pytest.raises(EvaluationError) as caught:
        answer(text)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("   ", "line 1, column 4: Syntax error"),
        ("device.a ==", "line 1, column 12: Syntax error"),
        ("1 ==\n1 ==\n$", "line 3, column 1: Syntax error"),
        ("device.pcie-root == 'r0'", "line 1, column 13: undeclared reference to 'root'"),
        ("nodevice.a == 'b'", "undeclared reference to 'nodevice"),
        ("driver == 'x'", "undeclared reference to 'driver'"),
        ("nosuch(device.a)", "undeclared reference to 'nosuch'"),
        ("1 == 'a'", "no matching overload for '_==_'"),
        ("'1' in 5", "no matching overload for '@in'"),
        ("device.model.matches('[')", "invalid matches argument"),
        ("int('x') == 1", "type conversion error from 'string' to 'int'"),
        (
            "google.protobuf.Struct{} == device",
            "google.protobuf.Struct is not available: use a list, a map",
        ),
        ("device.a == 'b", "Syntax error"),
        ("device.a = 1", "Syntax error"),
        ("device.a\x00 == 1", "Syntax error"),
        ("'\ud800' == 'a'", "not valid Unicode text"),
    ],
)
def test_compile_errors_have_position_and_fault(text, reason):
    with pytest.raises(CompileError) as caught:
        cel.compile_v1alpha1(text)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("device.a == 'b' && device['c-d'] > 1", {"a", "c-d"}),
        ("has(device.a) || 'b' in device", {"a", "b"}),
        ("device.a.b.c == 1", {"a"}),
        ("[1, 2].exists(x, x == device.n)", {"n"}),
        ("'b' in [device.a] || {'b': device.c}['b'] == 1", {"a", "c"}),
        ("true", set()),
        ("size(device) == 1", None),
        ("device.all(k, k != 'x')", None),
        ("device[device.a] == 1", None),
        ("device == device", None),
    ],
)
def test_reads_names_the_attributes_of_an_expression(text, reads):
    found = cel.compile_v1alpha1(text).reads
    assert found == (reads if reads is None else frozenset(reads))


ONES = "[" + ",".join(["1"] * 100) + "]"
TWO_THOUSAND = "[" + ",".join(["1"] * 2000) + "]"


def doubling(levels):
    text = "device.model"
    for level in range(levels):
        text = f"[{text}].map(x{level}, {'+'.join([f'x{level}'] * 8)})[0]"
    return f"size({text}) > 0"


HOSTILE = {
    "long": "device.a == '" + "x" * 10240 + "'",
    "deep parentheses": "(" * 5000 + "true" + ")" * 5000,
    "deep lists": "[" * 10000,
    "deep maps": "{" * 10000,
    "a chain of additions": "+".join(["1"] * 5000) + " == 1",
    "a chain of selections": "device" + ".a" * 5000 + " == 1",
    "a chain of conditions": "true ? true : " * 700 + "true",
    "garbage": "$" * 10240,
    "only not": "!" * 10240,
    "a large program for a regular expression": r"device.model.matches('\\pL{1000}')",
    "repeats of repeats": r"device.model.matches('(\\pL{1,100}){1,10}')",
}


def nested(levels, start, grown):
    """Return an expression whose value ``a`` grows in each of its levels."""
    text = f"cel.bind(a, {start}, " + f"cel.bind(a, {grown}, " * levels
    return text + "a.size() > 0" + ")" * (levels + 1)


EIGHT = "[1, 2, 3, 4, 5, 6, 7, 8]"
ENDLESS = {
    "a large loop in a large loop": f"{TWO_THOUSAND}.all(a, {TWO_THOUSAND}.all(b, b > 0))",
    "a list that doubles": nested(20, EIGHT, "a + a + a + a"),
    "a text that doubles": nested(20, "'12345678'", "a + a + a + a"),
    "replacements": nested(9, "'a' + device.model", "a.replace('', a)"),
    "joins": nested(12, "'12345678'", "[a, a, a, a, a, a, a, a].join()"),
    "nested lists": nested(9, EIGHT, "[a, a, a, a, a, a, a, a]").replace("a.size() > 0", "a == a"),
    "flat lists": nested(15, EIGHT, "[a, a, a, a, a, a, a, a].flatten()"),
    "formats": nested(9, EIGHT, "[a, a, a, a, a, a, a, a]").replace(
        "a.size() > 0", "'%s'.format([a]) == ''"
    ),
    "a list of lists": "lists.range(1000000).map(a, lists.range(1000)).size() > 0",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_evaluations_are_stopped(name):
    with pytest.raises(EvaluationError, match=r"cost limit exceeded|too much time or memory"):
        answer(ENDLESS[name])


def test_caller_can_stop_an_evaluation():
    class Stop(Exception):
        pass

    def spend(units):
        spent.append(units)
        if sum(spent) > 2500:
            raise Stop

    spent = []
    expression = cel.compile_v1alpha1(f"{TWO_THOUSAND}.all(a, a > 0)")
    with pytest.raises(Stop):
        expression.matches(DEVICE, spend)
    assert len(spent) == 3


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_expressions_do_not_compile(name):
    with pytest.raises(CompileError) as caught:
        cel.compile_v1alpha1(HOSTILE[name])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "||".join(["device.numa == 2"] * 500),
        f"{TWO_THOUSAND}.all(a, a > 0)",
        "device.model.matches('^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')",
        "device.model.matches('(a+)+$')",
        f"{ONES}.exists(x, device.model.matches('^[a-z]+-[0-9]+$'))",
        "device.all(key, key != 'x')",
        "(" * 25 + "true" + ")" * 25,
    ],
)
def test_long_harmless_expressions_compile(text):
    answer(text)


def test_constant_quantities_and_versions_are_parsed_once(monkeypatch):
    parsed = []

    def counted(module, name):
        function = getattr(module, name)

        def count(*arguments):
            parsed.append(arguments[0])
            return function(*arguments)

        monkeypatch.setattr(module, name, count)

    counted(amounts, "parse_quantity")
    counted(semver, "_identifier")  # called for the part after the hyphen
    expression = cel.compile_v1alpha1(
        "device.mem > quantity('15.9371Gi') && device.mem < '16.0371Gi'"
        " && device.fw > semver('1.9.3-rc.371') && device.fw < '1.99.0-x371'"
    )
    for _ in range(50):
        assert expression.matches(DEVICE)
    assert sorted(parsed) == ["15.9371Gi", "16.0371Gi", "371", "rc", "x371"]


def test_memory_is_flat_over_many_evaluations():
    expression = cel.compile_v1alpha1("device.mem == '16Gi' && device.fw == semver('1.10.0')")

    def evaluate():
        assert expression.matches(DEVICE)

    # The library's runtime lost the arguments of each call of a Python function.
    assert growth_of_memory(evaluate) < 10_000


def test_missing_library_is_a_one_line_error(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    parsing._environment.cache_clear()
    cel.compile_v1alpha1.cache_clear()
    try:
        assert cel.compile_v1alpha1("") is None
        with pytest.raises(ClaimsUnavailable) as caught:
            cel.compile_v1alpha1("device.a == 1")
    finally:
        monkeypatch.undo()
    assert "pip install 'kubelet-devicemanager[claims]'" in str(caught.value)
    assert cel.compile_v1alpha1("true").matches({})
