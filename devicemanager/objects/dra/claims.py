"""Rules for ResourceClaims, their templates and DeviceClasses (v1.37).

Each check yields one ``FieldError`` per broken rule; ``at`` is the path of the checked field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from devicemanager.objects.dra import formats, nodes
from devicemanager.objects.dra.errors import (
    Errors,
    declared,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from devicemanager.objects.dra.lists import bounded, items, unique

__all__ = [
    "MAX_RESULTS",
    "Compile",
    "RequestNames",
    "admin_access",
    "claim_spec",
    "class_spec",
    "configuration",
    "raw_object",
]

_Object = Mapping[str, Any]
Compile = Callable[[str], "str | None"]
"""Function that returns why the API server rejects a CEL expression, or None if the server accepts
the expression."""

MAX_RESULTS: Final = 32
_MAX_REQUESTS: Final = 32
_MAX_CONSTRAINTS: Final = 32
_MAX_CONFIGS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_SELECTORS: Final = 32
_MAX_EXPRESSION: Final = 10 * 1024
_MAX_PARAMETERS: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")
_REFERENCE_RULE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


class RequestNames:
    """Names of a claim's requests and subrequests."""

    def __init__(self, devices: _Object) -> None:
        self._names = {
            each.get("name", ""): {sub.get("name", "") for sub in each.get("firstAvailable") or ()}
            for each in devices.get("requests") or ()
        }

    def __contains__(self, name: str) -> bool:
        request, *subrequests = name.split("/")
        below = self._names.get(request)
        return below is not None and all(each in below for each in subrequests)

    def reference(self, at: str, name: str) -> Errors:
        """Yield the errors of a reference to a request or a subrequest (``request/subrequest``)."""
        parts = name.split("/")
        if len(parts) > 2:
            yield invalid(at, name, _REFERENCE_RULE)
            return
        for part in parts:
            yield from formats.short_name(at, part)
        if name not in self:
            yield invalid(at, name, _REFERENCE_RULE)

    def references(self, at: str, names: list[str] | None) -> Errors:
        """Yield the errors of a list of references to requests and subrequests."""
        yield from unique(at, names, _MAX_REQUESTS, self.reference, str)


# -- claims ------------------------------------------------------------------------------


def claim_spec(at: str, spec: _Object, compile_: Compile) -> Errors:
    """Yield an error for each broken rule in the spec of a claim."""
    devices = spec.get("devices") or {}
    at, names = f"{at}.devices", RequestNames(devices)
    rules = _Requests(compile_)
    requests = devices.get("requests")
    yield from unique(f"{at}.requests", requests, _MAX_REQUESTS, rules.request, _name)

    def constraint(path: str, found: _Object) -> Errors:
        return _constraint(path, found, names)

    def config(path: str, found: _Object) -> Errors:
        yield from names.references(f"{path}.requests", found.get("requests"))
        yield from configuration(path, found)

    constraints = devices.get("constraints")
    yield from bounded(f"{at}.constraints", constraints, _MAX_CONSTRAINTS, constraint)
    yield from bounded(f"{at}.config", devices.get("config"), _MAX_CONFIGS, config)


def _name(value: _Object) -> str:
    return str(value.get("name", ""))


class _Requests:
    """Rules for requests, which can have CEL expressions."""

    def __init__(self, compile_: Compile) -> None:
        self._compile = compile_

    def request(self, at: str, request: _Object) -> Errors:
        yield from formats.short_name(f"{at}.name", _name(request))
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
        rule = "exactly one of `exactly` or `firstAvailable` is required"
        if exactly is None and not alternatives:
            yield required(at, rule)
        elif exactly is not None and alternatives:
            yield invalid(at, None, f"{rule}, but multiple fields are set")
        elif alternatives:
            where = f"{at}.firstAvailable"
            yield from unique(where, alternatives, _MAX_ALTERNATIVES, self._alternative, _name)
        else:
            yield from self._exactly(f"{at}.exactly", exactly or {})

    def _exactly(self, at: str, request: _Object) -> Errors:
        yield from _class_name(f"{at}.deviceClassName", request.get("deviceClassName", ""))
        yield from self._devices(at, request)

    def _alternative(self, at: str, request: _Object) -> Errors:
        yield from formats.short_name(f"{at}.name", _name(request))
        name, where = request.get("deviceClassName", ""), f"{at}.deviceClassName"
        yield from formats.declared_long_name(where, name) if name else declared([required(where)])
        yield from self._devices(at, request)

    def _devices(self, at: str, request: _Object) -> Errors:
        yield from selectors(f"{at}.selectors", request.get("selectors"), self._compile)
        yield from _mode(at, request.get("allocationMode", ""), request.get("count", 0))
        yield from items(f"{at}.tolerations", request.get("tolerations"), nodes.toleration)


def _class_name(at: str, name: str) -> Errors:
    return formats.long_name(at, name) if name else iter([required(at)])


def _mode(at: str, mode: str, count: int) -> Errors:
    if mode == "All" and count:
        rule = "must not be specified when allocationMode is 'All'"
        yield invalid(f"{at}.count", count, rule)
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{at}.count", count, "must be greater than zero")
    elif mode not in _MODES:
        yield from declared([unsupported(f"{at}.allocationMode", mode, _MODES)])


def selectors(at: str, values: list[_Object] | None, compile_: Compile) -> Errors:
    """Yield an error for each invalid selector of a request or a DeviceClass."""

    def check(path: str, selector: _Object) -> Errors:
        cel = selector.get("cel")
        if cel is None:
            yield required(f"{path}.cel")
        else:
            yield from _expression(f"{path}.cel.expression", cel.get("expression", ""), compile_)

    yield from bounded(at, values, _MAX_SELECTORS, check)


def _expression(at: str, text: str, compile_: Compile) -> Errors:
    if formats.length(text) > _MAX_EXPRESSION:
        yield too_long(at, _MAX_EXPRESSION)
    elif (fault := compile_(text)) is not None:
        # An expression above the cost limit. Upstream reports it as Forbidden, not as Invalid.
        is_costly = fault.startswith("too complex")
        yield forbidden(at, fault) if is_costly else invalid(at, text, fault)


def _constraint(at: str, constraint: _Object, names: RequestNames) -> Errors:
    yield from names.references(f"{at}.requests", constraint.get("requests"))
    for name in ("matchAttribute", "distinctAttribute"):
        if (attribute := constraint.get(name)) is not None:
            yield from formats.fully_qualified_name(f"{at}.{name}", attribute)
    if all(constraint.get(each) is None for each in ("matchAttribute", "distinctAttribute")):
        # Upstream has this message even if neither field is set.
        rule = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple '
            "fields are set"
        )
        yield required(at, rule)


# -- configurations ----------------------------------------------------------------------


def configuration(at: str, config: _Object) -> Errors:
    """Yield the errors of one configuration of a claim, a DeviceClass or an allocation."""
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{at}.opaque")
        return
    yield from formats.declared_driver_name(f"{at}.opaque.driver", opaque.get("driver", ""))
    parameters = opaque.get("parameters")
    yield from raw_object(f"{at}.opaque.parameters", parameters, _MAX_PARAMETERS)


def raw_object(at: str, value: Any, most: int) -> Errors:
    """Yield an error if a value is not a JSON object of at most ``most`` bytes."""
    if value is None:
        yield required(at)
    elif formats.length(json.dumps(value, separators=(",", ":"), ensure_ascii=False)) > most:
        yield too_long(at, most)
    elif not isinstance(value, Mapping):
        yield invalid(at, "<value omitted>", "must be a valid JSON object")


# -- classes -----------------------------------------------------------------------------


def class_spec(spec: _Object, old: _Object | None, compile_: Compile) -> Errors:
    """Yield an error for each broken rule in the spec of a DeviceClass.

    The CEL expressions of unchanged selectors are not compiled.
    """
    chosen = spec.get("selectors")
    # A stored expression stays valid, even if another version of the compiler would reject it.
    is_stored = old is not None and old.get("selectors") == chosen
    yield from selectors("spec.selectors", chosen, accept if is_stored else compile_)
    yield from bounded("spec.config", spec.get("config"), _MAX_CONFIGS, configuration)
    if (name := spec.get("extendedResourceName")) is not None:
        yield from formats.extended_resource_name("spec.extendedResourceName", name)


def accept(_: str) -> None:
    """Accept a CEL expression without compiling it."""


# -- admin access ------------------------------------------------------------------------


def admin_access(at: str, wanted: Iterable[tuple[int, Any]], *, is_allowed: bool) -> Errors:
    """Yield an error if admin access is requested in a namespace without ``ADMIN_LABEL``.

    ``at``: path of a list of requests or of allocation results. ``wanted``: pairs of index and
    ``adminAccess``, one for each item of this list. ``is_allowed``: True if the namespace has the
    label.
    """
    for number, value in wanted:
        if value and not is_allowed:
            rule = (
                "admin access to devices requires the `resource.kubernetes.io/admin-access: true` "
                "label on the containing namespace"
            )
            yield forbidden(f"{at}[{number}].adminAccess", rule)
            # The API server reports only the first request or result with admin access.
            return
