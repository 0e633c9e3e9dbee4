"""Settings for a compilation, and the parts of ``device`` that an expression can read."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.claims.cel.checker import Environment
from devicemanager.claims.cel.dispatch import Dialect
from devicemanager.claims.cel.sizes import Sized
from devicemanager.claims.cel.syntax import Call, Ident, Node, Select, literal
from devicemanager.claims.cel.types import Type


@attrs.frozen(eq=False)
class Setting:
    """Settings that affect the compilation of an expression."""

    environment: Environment
    dialect: Dialect
    sizes: Mapping[str, Sized]
    results: frozenset[Type] | None = None
    """Types that the result may have; None allows any."""
    expected: str = "bool or the unknown type"
    """Expected type, as shown in the error for a result of another type."""
    allows_mixed: bool = False
    """True if elements of a list or map literal may differ in type."""
    allows_back_quotes: bool = True
    """True if field names may be in back quotes."""


def keys_read(root: Node, variable: str) -> frozenset[str] | None:
    """Return the keys of the map ``variable`` that an expression can read; None means any key.

    ``v.key``, ``v['key']``, ``has(v.key)`` and ``'key' in v`` read one key. All other uses of the
    variable, such as ``size(v)``, read the whole map.
    """
    keys: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if _is_variable(node, variable):
            return None
        key = _key_of(node, variable)
        if key is None:
            stack += node.children()
        else:
            keys.add(key)
    return frozenset(keys)


def _is_variable(node: Node, variable: str) -> bool:
    return isinstance(node, Ident) and node.name.removeprefix(".") == variable


def _key_of(node: Node, variable: str) -> str | None:
    """Return the key if ``node`` reads a constant key of ``variable``, else None."""
    # A computed key, such as ``device[device.a]``, can be any key.
    if isinstance(node, Select) and _is_variable(node.operand, variable):
        return node.field
    if not isinstance(node, Call) or len(node.args) != 2:
        return None
    first, second = node.args
    if node.function in _INDEXES and _is_variable(first, variable):
        return literal(second)
    if node.function == "@in" and _is_variable(second, variable):
        return literal(first)
    return None


_INDEXES = frozenset({"_[_]", "_[?_]", "_?._"})


def names_read(root: Node) -> frozenset[str] | None:
    """Return the names of attributes and capacities that a selector can read; None means any name.

    ``device.attributes['d'].name`` reads one name. All other uses of the attributes read all of
    them.
    """
    names: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if _is_collection(node):
            return None
        found = _element_name(node)
        if found is None:
            stack += node.children()
        else:
            names.add(found)
    return frozenset(names - {""})


def _is_collection(node: Node) -> bool:
    """True for the device, its attributes and its capacity."""
    if _is_variable(node, "device"):
        return True
    field = _field_of_device(node)
    return field is not None and field not in ("driver", "allowMultipleAllocations")


def _field_of_device(node: Node) -> str | None:
    return _key_of(node, "device")


def _element_name(node: Node) -> str | None:
    """Return NAME for ``device.attributes['d'].NAME``, "" for a scalar field of the device, else
    None."""
    field = _field_of_device(node)
    if field in ("driver", "allowMultipleAllocations"):
        return ""
    operand: Node | None = None
    name: str | None = None
    if isinstance(node, Select):
        operand, name = node.operand, node.field
    elif isinstance(node, Call) and node.function in _INDEXES and len(node.args) == 2:
        operand, name = node.args[0], literal(node.args[1])
    if operand is None or name is None or not _is_domain(operand):
        return None
    return name


def _is_domain(node: Node) -> bool:
    """True for ``device.attributes['d']`` and ``device.capacity['d']``."""
    if isinstance(node, Select):
        return not node.is_test and _is_domains(node.operand)
    is_index = isinstance(node, Call) and node.function in _INDEXES and len(node.args) == 2
    return bool(
        is_index and isinstance(node, Call) and literal(node.args[1]) is not None
        and _is_domains(node.args[0])
    )  # fmt: skip


def _is_domains(node: Node) -> bool:
    return _field_of_device(node) in ("attributes", "capacity") and not getattr(
        node, "is_test", False
    )
