"""Device selectors: versions and gates, errors, admission, results that can be cached, memory."""

import re

import pytest

from devicemanager.claims.cel.declarations import kubernetes_library
from devicemanager.claims.cel.dra import (
    Attribute,
    CelCompileError,
    CelRuntimeError,
    Device,
    Features,
    Release,
    check_new_selector,
    compile_selector,
)
from tests.helpers import growth_of_memory
from tests.paths import ROOT

LIBRARY = kubernetes_library()

DEVICE = Device(
    "gpu.example.com",
    {
        "model": Attribute("string", "A100"),
        "version": Attribute("version", "1.10.0"),
        "index": Attribute("int", 3),
        "links": Attribute("ints", (1, 2)),
        "other.example.com/model": Attribute("string", "other"),
    },
    {"memory": "40Gi"},
    allow_multiple_allocations=True,
)
USUAL = (
    "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'A100'"
    " && device.capacity['gpu.example.com'].memory.compareTo(quantity('10Gi')) >= 0"
    " && device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.9.0'))"
)


MANY = (
    "cel.bind(a, [1, 2, 3, 4, 5, 6, 7, 8], " + "cel.bind(a, a + a + a + a, " * 12 + "a" + ")" * 13
)


def answer(text, device=DEVICE, **features):
    return compile_selector(text, features=Features(**features)).evaluate(device)


@pytest.mark.parametrize(
    "text",
    [
        USUAL,
        "device.allowMultipleAllocations",
        "device.attributes['other.example.com'].model == 'other'",
        "!has(device.attributes['unknown.example.com'].model)",
        "device.attributes['gpu.example.com'].links.exists(link, link == 2)",
        "device.attributes['gpu.example.com'].links.includes(1)",
        "device.attributes['gpu.example.com'].`model` == 'A100'",
    ],
)
def test_selectors_match(text):
    assert answer(text) is True


def test_error_texts_are_those_of_kubernetes():
    with pytest.raises(CelRuntimeError, match=r"^no such key: missing$") as failed:
        answer("device.attributes['gpu.example.com'].missing == 1")
    assert failed.value.is_supported
    with pytest.raises(CelCompileError) as refused:
        answer("device.name == 'x'")
    assert str(refused.value) == (
        "compilation failed: ERROR: <input>:1:7: undefined field 'name'\n"
        " | device.name == 'x'\n"
        " | ......^"
    )
    assert refused.value.is_supported
    # The error is cached, but each call raises its own.
    with pytest.raises(CelCompileError) as again:
        answer("device.name == 'x'")
    assert again.value is not refused.value


def test_unsupported_expressions_say_so():
    with pytest.raises(CelCompileError, match=r"^not supported: nested too deeply") as caught:
        answer("(" * 40 + "true" + ")" * 40)
    assert not caught.value.is_supported
    with pytest.raises(CelRuntimeError, match=r"^not supported: .* too much time") as stopped:
        answer(f"{MANY}.size() > 0")
    assert not stopped.value.is_supported


def test_caller_can_stop_an_evaluation():
    class Stop(Exception):
        pass

    def spend(units):
        raise Stop(units)

    selector = compile_selector("lists.range(100000).all(x, x >= 0)")
    with pytest.raises(Stop):
        selector.evaluate(DEVICE, spend)


def test_attribute_without_a_value_is_an_error():
    with pytest.raises(CelRuntimeError, match=r"^attribute n: unsupported attribute value$"):
        answer("true", Device("d", {"n": Attribute("", "")}))


def test_broken_attribute_is_an_error_of_every_selector():
    broken = Device("d", {"v": Attribute("version", "1.0")})
    with pytest.raises(CelRuntimeError, match=r"^attribute v: parse semantic version: No Major"):
        answer("true", broken)


def test_lists_need_their_gate_in_1_36():
    links = "device.attributes['gpu.example.com'].links"
    assert answer(f"{links}.includes(2)", release=Release.V1_36, list_attributes=True)
    with pytest.raises(CelRuntimeError, match=r"^attribute links: unsupported attribute value$"):
        answer("true", release=Release.V1_36)
    with pytest.raises(CelCompileError, match="expression of type 'any' cannot be range"):
        answer(f"{links}.all(link, link > 0)", release=Release.V1_36)


def test_names_in_back_quotes_need_1_37():
    with pytest.raises(CelCompileError, match=r":1:38: unsupported syntax: '`'"):
        answer("device.attributes['gpu.example.com'].`model` == '`'", release=Release.V1_36)
    assert not answer("device.driver == '`' // `", Device("d"), release=Release.V1_36)


def test_range_and_includes_are_limited_by_version():
    many = f"[{', '.join(['1'] * 49)}].includes(2)"
    assert answer(many) is False
    with pytest.raises(CelRuntimeError, match="cannot be applied to lists longer than 48 values"):
        answer(many, Device("d"), release=Release.V1_36)
    assert answer("lists.range(-1) == []", Device("d"), release=Release.V1_36)
    with pytest.raises(CelRuntimeError, match="size must be non-negative, got -1"):
        answer("lists.range(-1) == []")


def test_new_selectors_depend_on_gates():
    off = Features(consumable_capacity=False)
    for text, fault in (
        ("device.allowMultipleAllocations", "undefined field 'allowMultipleAllocations'"),
        ("device.attributes['d'].l.includes(1)", "undeclared reference to 'includes'"),
        ("device.attributes['d'].l.all(x, x > 1)", "expression of type 'any' cannot be range"),
    ):
        assert fault in check_new_selector(text, features=off)
        # Stored selectors do not depend on them.
        assert compile_selector(text, features=off).output_type == "bool"
        assert check_new_selector(text, features=Features(list_attributes=True)) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (USUAL, None),
        ("device.driver == '" + "x" * 10240 + "'", "Too long: may not be more than 10240 bytes"),
        (
            "device.capacity['d'].memory != quantity('1Gi')",
            "too complex, exceeds cost limit",
        ),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
    ],
)
def test_new_selectors_have_limits(text, fault):
    assert check_new_selector(text) == fault


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        (USUAL, {"model", "version", "memory"}),
        ("has(device.attributes['d'].a) && device.attributes['d']['b'] == 1", {"a", "b"}),
        ("device.attributes['d'].?c.orValue(1) == 1", {"c"}),
        ("device.attributes['d'][?'c'].hasValue() && 'e' in device.attributes['d']", None),
        ("cel.bind(a, device.attributes['d'], a.b == 1)", None),
        ("device.attributes.size() == 1", None),
        ("true", set()),
    ],
)
def test_names_that_a_selector_reads(text, reads):
    assert compile_selector(text).reads == (None if reads is None else frozenset(reads))


def test_projection_ignores_what_is_not_read():
    selector = compile_selector(USUAL)
    other = Device(
        DEVICE.driver,
        {**DEVICE.attributes, "serial": Attribute("string", "1")},
        DEVICE.capacity,
        allow_multiple_allocations=True,
    )
    assert selector.projection(other) == selector.projection(DEVICE)
    broken = {"serial": Attribute("version", "1")}
    faulty = Device(DEVICE.driver, {**DEVICE.attributes, **broken}, DEVICE.capacity, True)
    assert selector.projection(faulty) != selector.projection(DEVICE)
    unread = Device(DEVICE.driver, DEVICE.attributes, {**DEVICE.capacity, "x": "1"}, True)
    assert selector.projection(unread) == selector.projection(DEVICE)
    invalid = Device(DEVICE.driver, DEVICE.attributes, {**DEVICE.capacity, "x": "?"}, True)
    assert selector.projection(invalid) != selector.projection(DEVICE)
    less = Device(DEVICE.driver, DEVICE.attributes, {"memory": "1Gi"})
    assert selector.projection(less) != selector.projection(DEVICE)


def test_memory_is_flat_over_many_evaluations():
    selector = compile_selector(USUAL)
    # The library's runtime lost 1.8 kB per evaluation.
    assert growth_of_memory(lambda: selector.evaluate(DEVICE)) < 10_000


def test_page_lists_all_functions():
    page = (ROOT / "docs" / "cel.md").read_text()
    names = set(re.findall(r"`([\w.]+)`", page))
    hidden = {"cel.@mapInsert", "@not_strictly_false", "@sortByAssociatedKeys", "@in"}
    authorizer = {name for name, overloads in LIBRARY.items() if _is_authorizer(overloads)}
    functions = {name for name in LIBRARY if name[0].isalpha() and "_" not in name}
    assert functions - names - hidden - authorizer == set()


def _is_authorizer(overloads):
    return all(each.params and "authorization" in each.params[0].name for each in overloads)
