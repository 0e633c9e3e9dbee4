"""The CEL library, imported at first use, and the functions that ``v1alpha1`` adds to it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import attrs

from devicemanager.claims.cel import values
from devicemanager.claims.errors import ClaimsUnavailable

EQUAL, UNEQUAL = "devmgmt_equal", "devmgmt_unequal"
"""Names of the functions that replace ``==`` and ``!=`` to coerce strings."""


@cache
def load() -> Any:
    """Import and return the CEL library. Raises ClaimsUnavailable if it is not installed."""
    try:
        return importlib.import_module("cel_expr_python.cel")
    except ImportError as error:
        raise ClaimsUnavailable(
            "constraints of structured claims need cel-expr-python:"
            f" pip install 'kubelet-devicemanager[claims]' ({error})"
        ) from None


@attrs.frozen
class Environment:
    """CEL environments of one API: variables and functions that constraints can use."""

    variable: str
    checking: Any
    """CEL environment for compiling, with the functions that users can call."""
    running: Any
    """CEL environment for evaluating, which also has the functions that replace operators."""


@cache
def v1alpha1() -> Environment:
    """Return the CEL environments of ``devmgmtproto.k8s.io/v1alpha1``.

    The variable ``device`` is a flat map of attributes. A string that is compared with a
    quantity or version is parsed as that type.
    """
    cel = load()
    functions = _functions(cel)
    return Environment(
        "device",
        _environment(cel, "devmgmt", functions),
        _environment(cel, "devmgmt-running", [*functions, *_equality(cel)]),
    )


def _environment(cel: Any, name: str, functions: list[Any]) -> Any:
    device = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return cel.NewEnv(
        values.descriptors(),
        variables={"device": device},
        extensions=[cel.CelExtension(name, functions)],
    )


def _functions(cel: Any) -> list[Any]:
    kind = cel.Type
    value = kind(values.VALUE)
    quantity, semver = values.quantity, values.of_version
    return [
        # The type is DYN, so that a comparison with a string passes the type check.
        _function(cel, "quantity", kind.DYN, ([kind.STRING], quantity)),
        _function(cel, "semver", kind.DYN, ([kind.STRING], semver)),
        _function(cel, "isQuantity", kind.BOOL, ([kind.STRING], values.parses(quantity))),
        _function(cel, "isSemver", kind.BOOL, ([kind.STRING], values.parses(semver))),
        _method(cel, "compareTo", kind.INT, [value, value], values.compare),
        _method(cel, "isLessThan", kind.BOOL, [value, value], values.ORDER["_<_"]),
        _method(cel, "isGreaterThan", kind.BOOL, [value, value], values.ORDER["_>_"]),
        *(
            _method(cel, part, kind.INT, [value], values.version_part(part))
            for part in ("major", "minor", "patch")
        ),
        *(_comparison(cel, name, compare) for name, compare in values.ORDER.items()),
    ]


def _comparison(cel: Any, name: str, compare: Callable[[Any, Any], bool]) -> Any:
    value, text = cel.Type(values.VALUE), cel.Type.STRING
    # Overloads for both orders, because users write the string on the left or on the right.
    pairs = ([value, value], [value, text], [text, value])
    return _function(cel, name, cel.Type.BOOL, *[(pair, compare) for pair in pairs])


def _equality(cel: Any) -> list[Any]:
    pair = [cel.Type.DYN, cel.Type.DYN]
    return [
        _function(cel, EQUAL, cel.Type.BOOL, (pair, values.equal)),
        _function(cel, UNEQUAL, cel.Type.BOOL, (pair, _unequal)),
    ]


def _unequal(one: Any, other: Any) -> bool:
    return not values.equal(one, other)


def _function(cel: Any, name: str, result: Any, *overloads: tuple[list[Any], Any]) -> Any:
    return cel.FunctionDecl(
        name,
        [
            cel.Overload(f"devmgmt_{name}_{number}", result, parameters, False, implementation)
            for number, (parameters, implementation) in enumerate(overloads)
        ],
    )


def _method(cel: Any, name: str, result: Any, parameters: list[Any], implementation: Any) -> Any:
    overload = cel.Overload(f"devmgmt_{name}", result, parameters, True, implementation)
    return cel.FunctionDecl(name, [overload])
