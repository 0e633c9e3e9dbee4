"""Device selectors of ``resource.k8s.io``: CEL expressions about one device.

In:  the text of a selector; a device with its attributes and capacity.
Out: True if the device matches, else False; or CelCompileError or CelRuntimeError with the
     message of Kubernetes.

The reference is the package ``cel`` of k8s.io/dynamic-resource-allocation, v0.36.3 and v0.37.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, lru_cache
from typing import TypeVar

import attrs

from devicemanager.claims.cel import declarations, reading, types
from devicemanager.claims.cel.checker import Environment
from devicemanager.claims.cel.compiling import Compiled, Fault, compile_expression
from devicemanager.claims.cel.dispatch import Dialect
from devicemanager.claims.cel.functions import (
    IMPLEMENTATIONS,
    Implementation,
    amounts,
    lists,
    texts,
)
from devicemanager.claims.cel.limits import MAX_COST, NoAnswer, Spend
from devicemanager.claims.cel.parsing import NotSupported
from devicemanager.claims.cel.semver import Version
from devicemanager.claims.cel.sizes import Sized
from devicemanager.claims.cel.types import Type
from devicemanager.claims.cel.values import (
    CelError,
    EvaluationStopped,
    Map,
    Optional,
    Value,
    type_name,
)
from devicemanager.claims.errors import ClaimsError

MAX_LENGTH = 10 * 1024
"""Maximum length of a new selector, in bytes (``CELSelectorExpressionMaxLength``)."""

Scalar = int | bool | str
_T = TypeVar("_T")
_E = TypeVar("_E", bound="_Expression")


class Release(Enum):
    """Kubernetes release whose rules apply to selectors."""

    V1_36 = "1.36"
    V1_37 = "1.37"


@attrs.frozen
class Features:
    """Kubernetes release and feature gates that affect selectors."""

    release: Release = Release.V1_37
    """Release whose rules apply. For a release that is not in ``Release``, pass the nearest
    member."""
    consumable_capacity: bool = True
    """Gate DRAConsumableCapacity: new selectors can read ``device.allowMultipleAllocations``."""
    list_attributes: bool = False
    """Gate DRAListTypeAttributes: new selectors can call ``includes`` and loop over list
    attributes.

    Stored selectors can call ``includes`` without this gate. In 1.36 without this gate, every
    selector fails for a device that has a list attribute.
    """


DEFAULT_FEATURES = Features()


@attrs.frozen
class Attribute:
    """Value of an attribute: an int, bool, string or version, or a list of them."""

    kind: str
    """Type of the value: ``int``, ``bool``, ``string`` or ``version``. The type of a list is in the
    plural, such as ``ints``."""
    value: Scalar | tuple[Scalar, ...]


@attrs.frozen
class Device:
    """Properties of a device that a selector can read."""

    driver: str
    attributes: Mapping[str, Attribute] = attrs.field(factory=dict)
    """Attributes by name. The domain of a name without ``/`` is the name of the driver."""
    capacity: Mapping[str, str] = attrs.field(factory=dict)
    """Quantities by capacity name."""
    allow_multiple_allocations: bool = False


class CelCompileError(ClaimsError):
    """Error for a selector that does not compile, or that this package does not support."""

    is_supported: bool = True
    """True if Kubernetes also rejects the expression. False if this package does not support the
    expression, but Kubernetes may accept it."""


class CelRuntimeError(ClaimsError):
    """Error for a selector whose evaluation fails for a device."""

    is_supported: bool = True
    """True if Kubernetes also fails. False if this package stopped the evaluation, but Kubernetes
    may return a result."""


@attrs.frozen(eq=False)
class _Expression:
    """Compiled expression. It is immutable, so threads can share it."""

    expression: str
    estimated_cost: int
    """Worst-case cost in Kubernetes' units; ``sizes.UNBOUNDED`` if the cost has no bound."""
    output_type: str
    """CEL type of the result.

    The type of an attribute is known only at run time. If the result is an attribute,
    ``output_type`` is ``dyn`` or ``google.protobuf.Any``.
    """
    reads: frozenset[str] | None
    """Names of the attributes and capacities that the expression can read. The names have no
    domain.

    None means all attributes and capacities. ``projection`` uses the names to build a cache key.
    """
    _compiled: Compiled = attrs.field(repr=False)
    _features: Features = attrs.field(repr=False)

    def projection(self, device: Device) -> tuple[object, ...]:
        """Return the part of a device that the expression can read, as a cache key.

        Devices with equal projections have equal results.
        """
        attributes = _projected(device.attributes, self.reads)
        capacity = _projected(device.capacity, self.reads)
        # A malformed value fails every expression, even one that does not read it.
        fault = _first_fault(device, self._features)
        return device.driver, device.allow_multiple_allocations, attributes, capacity, fault

    def _run(self, device: Device, spend: Spend | None, convert: Callable[[Value], _T]) -> _T:
        """Return the value for a device, converted. Raises CelRuntimeError with Kubernetes'
        text."""
        try:
            variables = {"device": device_value(device, self._features)}
            return convert(self._compiled.program.run(variables, spend))
        except (CelError, EvaluationStopped) as error:
            failed = CelRuntimeError(str(error))
            failed.is_supported = not isinstance(error, NoAnswer)
            raise failed from None


@attrs.frozen(eq=False)
class DraSelector(_Expression):
    """Compiled CEL expression that selects devices."""

    def evaluate(self, device: Device, spend: Spend | None = None) -> bool:
        """Return True if the device matches. If the evaluation fails, raise CelRuntimeError with
        Kubernetes' message.

        During the evaluation, ``spend`` is called with the number of cost units that were spent
        since its last call. If ``spend`` raises an exception, the evaluation ends.
        """
        return self._run(device, spend, _as_bool)


@attrs.frozen(eq=False)
class DerivedAttribute(_Expression):
    """Compiled CEL expression of a derived attribute (alpha in Kubernetes 1.37).

    A request in a claim can define derived attributes, each with an expression. The expression
    computes the attribute's value from the properties of a device.
    """

    def value(self, device: Device, spend: Spend | None = None) -> Attribute:
        """Return the value of the derived attribute for a device. If the evaluation fails, raise
        CelRuntimeError with Kubernetes' message.

        ``spend`` is called with cost units, as in ``DraSelector.evaluate``.
        """
        return self._run(device, spend, _as_attribute)


def _first_fault(device: Device, features: Features) -> str | None:
    try:
        _attribute_values(device, features)
        _capacity_values(device)
    except CelError as error:
        return str(error)
    return None


def _projected(values: Mapping[str, object], names: frozenset[str] | None) -> tuple[object, ...]:
    return tuple(
        (name, value)
        for name, value in sorted(values.items())
        if names is None or name.partition("/")[2] in names or name in names
    )


def compile_selector(expression: str, *, features: Features = DEFAULT_FEATURES) -> DraSelector:
    """Compile a stored selector, as the scheduler does.

    Raises CelCompileError with Kubernetes' message. Length and estimated cost have no limit here:
    ``check_new_selector`` checks them.
    """
    return _found(DraSelector, expression, features)


def compile_derived_attribute(
    expression: str, *, features: Features = DEFAULT_FEATURES
) -> DerivedAttribute:
    """Compile the expression of a derived attribute in a stored claim, as the scheduler does.

    Derived attributes are alpha in Kubernetes 1.37. Raises CelCompileError with Kubernetes'
    message.
    """
    return _found(DerivedAttribute, expression, features)


def _found(kind: type[_E], expression: str, features: Features, *, is_new: bool = False) -> _E:
    compiled = _compiled(expression, features, is_new, kind is DerivedAttribute)
    # Cache the message, not the exception: a raised exception holds its traceback.
    if isinstance(compiled, CelCompileError):
        raise _copy(compiled)
    assert isinstance(compiled, kind)
    return compiled


def _copy(error: CelCompileError) -> CelCompileError:
    copied = CelCompileError(str(error))
    copied.is_supported = error.is_supported
    return copied


@lru_cache(maxsize=1024)
def _compiled(
    expression: str, features: Features, is_new: bool, is_derived: bool
) -> _Expression | CelCompileError:
    try:
        setting = _setting(features, is_new)
        if is_derived:
            setting = _for_derived(setting)
        compiled = compile_expression(expression, setting)
    except NotSupported as error:
        failed = CelCompileError(f"not supported: {error}")
        failed.is_supported = False
        return failed
    except Fault as error:
        return CelCompileError(str(error))
    names = reading.names_read(compiled.root)
    kind = DerivedAttribute if is_derived else DraSelector
    return kind(
        expression, compiled.estimated_cost, compiled.root.type.full_name, names, compiled, features
    )


def check_new_selector(expression: str, *, features: Features = DEFAULT_FEATURES) -> str | None:
    """Return why the API server rejects a new selector; None if the server accepts it.

    The reason is the message of the field error, without the path of the field.
    """
    if len(expression.encode(errors="surrogatepass")) > MAX_LENGTH:
        return f"Too long: may not be more than {MAX_LENGTH} bytes"
    try:
        selector = _found(DraSelector, expression, features, is_new=True)
    except CelCompileError as error:
        return str(error)
    if selector.estimated_cost > MAX_COST:
        return "too complex, exceeds cost limit"
    return None


def _as_bool(value: Value) -> bool:
    content = value
    while isinstance(content, Optional) and content.has_value:
        content = content.value
    if isinstance(content, bool):
        return content
    why = _why(content)
    raise CelError(f"CEL result of type {type_name(value)} could not be converted to bool: {why}")


def _why(value: Value) -> str:
    """Return Go's reason why a value cannot be converted to bool. It depends on the value's
    type."""
    if isinstance(value, Optional):
        return "optional.none() dereference"
    name = type_name(value)
    short = name.rpartition(".")[2]
    if name in ("kubernetes.Semver", "kubernetes.Quantity"):
        return f"type conversion error from '{short}' to 'bool'"
    if name in ("int", "uint"):
        return f"unsupported type conversion from '{name}' to bool"
    if name == "string":
        return "unsupported native conversion from string to 'bool'"
    return f"type conversion error from {name} to 'bool'"


def _as_attribute(value: Value) -> Attribute:
    """Convert the value of a derived attribute (``valToDeviceAttribute``). Raises CelError for an
    unsupported type."""
    if not isinstance(value, list):
        kind = _ATTRIBUTE_KINDS.get(type(value))
        if kind is None:
            raise CelError(f"unsupported CEL return type: {_go_type(value)}")
        return Attribute(kind, _content(value))
    if not value:
        return Attribute("strings", ())
    kind = _ATTRIBUTE_KINDS.get(type(value[0]))
    if kind is None:
        raise CelError(f"unsupported list element type: {_go_type(value[0])}")
    for index, each in enumerate(value):
        if type(each) is not type(value[0]):
            wanted = "semver" if kind == "version" else kind
            raise CelError(
                f"expected list element at index {index} to be {wanted}, got {_go_type(each)}"
            )
    return Attribute(f"{kind}s", tuple([_content(each) for each in value]))


_ATTRIBUTE_KINDS: dict[type, str] = {bool: "bool", int: "int", str: "string", Version: "version"}
_GO_TYPES: dict[str, str] = {
    "int": "int64",
    "uint": "uint64",
    "double": "float64",
    "bytes": "[]uint8",
    "list": "[]ref.Val",
    "map": "map[ref.Val]ref.Val",
    "null_type": "structpb.NullValue",
    "kubernetes.Semver": "semver.Version",
    "kubernetes.Quantity": "*resource.Quantity",
}
"""Go types of values that error messages name, by the name of the CEL type."""


def _content(value: Scalar | Version) -> Scalar:
    return value.text if isinstance(value, Version) else value


def _go_type(value: Value) -> str:
    name = type_name(value)
    return _GO_TYPES.get(name, name)


def device_value(device: Device, features: Features) -> Map:
    """Return the value that the CEL variable ``device`` has for a device.

    Raises CelError for an invalid attribute or capacity.
    """
    attributes = _attribute_values(device, features)
    capacity = _capacity_values(device)
    return Map(
        [
            ("driver", device.driver),
            ("allowMultipleAllocations", device.allow_multiple_allocations),
            ("attributes", _by_domain(attributes, device.driver)),
            ("capacity", _by_domain(capacity, device.driver)),
        ]
    )


def _capacity_values(device: Device) -> list[tuple[str, Value]]:
    return [(name, amounts.quantity(text)) for name, text in device.capacity.items()]


def _attribute_values(device: Device, features: Features) -> list[tuple[str, Value]]:
    reads_lists = features.list_attributes or features.release is Release.V1_37
    values: list[tuple[str, Value]] = []
    for name, attribute in device.attributes.items():
        try:
            values.append((name, _attribute_value(attribute, reads_lists)))
        except CelError as error:
            raise CelError(f"attribute {name}: {error}") from None
    return values


_EMPTY = Map([])


def _by_domain(values: Iterable[tuple[str, Value]], driver: str) -> Map:
    """Group values by domain, then by name. An unknown domain gives an empty map.

    A name without a domain belongs to the domain ``driver``.
    """
    domains: dict[str, list[tuple[str, Value]]] = {}
    for name, value in values:
        domain, slash, short = name.partition("/")
        pair = (short, value) if slash else (name, value)
        domains.setdefault(domain if slash else driver, []).append(pair)
    found = [(domain, Map(pairs, has_texts=True)) for domain, pairs in domains.items()]
    return Map(found, default=_EMPTY, has_texts=True)


_KINDS = frozenset({"int", "bool", "string", "version"})


def _attribute_value(attribute: Attribute, reads_lists: bool) -> Value:
    if isinstance(attribute.value, tuple):
        if not reads_lists:
            raise CelError("unsupported attribute value")
        kind = attribute.kind.removesuffix("s")
        return [_scalar(kind, each) for each in attribute.value]
    return _scalar(attribute.kind, attribute.value)


def _scalar(kind: str, value: Scalar) -> Value:
    if kind not in _KINDS:
        raise CelError("unsupported attribute value")
    if kind != "version":
        return value
    try:
        return amounts.version(str(value))
    except CelError as error:
        raise CelError(f"parse semantic version: {error}") from None


def _attribute_type(features: Features, is_new: bool) -> Type:
    # Since 1.37, the environment for stored expressions ignores the gate.
    ignores_gate = features.release is Release.V1_37 and not is_new
    return types.DYN if features.list_attributes or ignores_gate else types.ANY


_DERIVED = (types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER)


def _for_derived(setting: reading.Setting) -> reading.Setting:
    """Return ``setting`` for derived attributes, whose results can have other types."""
    return attrs.evolve(
        setting,
        results=frozenset({*_DERIVED, *map(types.list_of, _DERIVED)}),
        expected="a primitive scalar (string, integer, boolean, semver) or a list of these scalars",
    )


_DURATION_OF_INT = "int64_to_duration = duration(int) duration\n"
"""Overload that Kubernetes declares until 1.36 but does not implement."""
_DOMAIN, _NAME = Sized(63), Sized(32)
_DEVICE = "kubernetes.DRADevice"


@cache
def _setting(features: Features, is_new: bool) -> reading.Setting:
    """Return the environment for new or for stored expressions.

    Most feature gates affect only new expressions.
    """
    is_1_37 = features.release is Release.V1_37
    attribute = _attribute_type(features, is_new)
    text = types.STRING
    fields = {
        "driver": text,
        "attributes": types.map_of(text, types.map_of(text, attribute)),
        "capacity": types.map_of(text, types.map_of(text, types.QUANTITY)),
    }
    if features.consumable_capacity or not is_new:
        fields["allowMultipleAllocations"] = types.BOOL
    includes = declarations.INCLUDES if features.list_attributes or not is_new else ""
    implementations: dict[str, Implementation] = {
        **IMPLEMENTATIONS,
        "list_includes_dyn_dyn": lists.includes,
        "lists_range": lists.numbers_below,
    }
    if features.release is Release.V1_36:
        includes = includes.replace("list_includes", "dra_includes")
        implementations |= texts.IMPLEMENTATIONS_1_36
        implementations["dra_includes_dyn_dyn"] = lists.includes_in_few
        implementations["lists_range"] = lists.numbers_below_unchecked
        includes += _DURATION_OF_INT
    library = declarations.merged(declarations.kubernetes_library(), declarations.declare(includes))
    return reading.Setting(
        Environment({"device": Type(_DEVICE)}, {_DEVICE: fields}, library),
        Dialect(library, implementations, is_1_37),
        {"device": _sizes()},
        frozenset({types.BOOL, attribute}),
        allows_back_quotes=is_1_37,
    )


def _sizes() -> Sized:
    """Return the maximum sizes that the API allows for the fields of a device."""
    value = Sized(64)
    attributes = Sized(32, _NAME, value, has_uniform_values=True)
    capacity = Sized(32, _NAME, Sized(0))
    return Sized(
        0,
        fields={
            "driver": Sized(63),
            "allowMultipleAllocations": Sized(1),
            "attributes": Sized(32, _DOMAIN, attributes),
            "capacity": Sized(32, _DOMAIN, capacity),
        },
    )
