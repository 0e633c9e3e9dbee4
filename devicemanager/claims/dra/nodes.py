"""Nodes, and node selectors of slices and devices (``nodeaffinity.NodeSelector``, v1.37)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from devicemanager.claims.dra.errors import AllocationError
from devicemanager.core.messages import go_printed

Object = Mapping[str, Any]
"""API object as JSON."""

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


@attrs.frozen
class Node:
    """Node on which claims are allocated."""

    name: str
    labels: Mapping[str, str] = attrs.field(factory=dict)
    declared_features: frozenset[str] = frozenset()
    """``status.declaredFeatures``: names of features."""

    @classmethod
    def of(cls, value: Object) -> Node:
        """Read a Node object of the API."""
        metadata, status = value["metadata"], value.get("status") or {}
        return cls(
            metadata["name"],
            metadata.get("labels") or {},
            frozenset(status.get("declaredFeatures") or ()),
        )


class InvalidSelector(AllocationError):
    """Error for an invalid node selector, which cannot be evaluated for any node."""


def node_matches(node: Node, spec: Object) -> bool:
    """True if a node can use a slice, or a device with its own node selection.

    ``spec``: the spec of the slice, or the device, with ``nodeName``, ``allNodes`` or
    ``nodeSelector``. Raises InvalidSelector for a malformed node selector.
    """
    name = spec.get("nodeName")
    if name:
        return bool(node.name == name)
    if spec.get("allNodes"):
        return True
    selector = spec.get("nodeSelector")
    return selector is not None and selects(selector, node)


def selects(selector: Object, node: Node) -> bool:
    """True if a node satisfies at least one term of the selector.

    Raises InvalidSelector for a malformed selector.
    """
    terms = [
        (number, term)
        for number, term in enumerate(selector.get("nodeSelectorTerms") or ())
        # An empty term matches no node.
        if term.get("matchExpressions") or term.get("matchFields")
    ]
    # All terms are checked first: an error in one of them is an error on every node.
    faults = [fault for number, term in terms for fault in _faults(number, term)]
    if faults:
        # Go removes duplicate errors, and writes brackets around several.
        text = faults[0] if len(faults) == 1 else f"[{', '.join(dict.fromkeys(faults))}]"
        raise InvalidSelector(f"failed to parse node selector {_go_text(selector)}: {text}")
    return any(_matches(term, node) for _, term in terms)


def _matches(term: Object, node: Node) -> bool:
    fields = {"metadata.name": node.name}
    return all(
        _is_met(requirement, node.labels) for requirement in term.get("matchExpressions") or ()
    ) and all(_is_met(requirement, fields) for requirement in term.get("matchFields") or ())


def _is_met(requirement: Object, labels: Mapping[str, str]) -> bool:
    key, operator = requirement["key"], requirement["operator"]
    value, values = labels.get(key), list[str](requirement.get("values") or ())
    if operator == "In":
        return value in values
    # A node without the label matches, too.
    if operator == "NotIn":
        return value not in values
    if operator in ("Exists", "DoesNotExist"):
        return bool((value is not None) == (operator == "Exists"))
    if value is None or not _INTEGER.match(value):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _faults(number: int, term: Object) -> Iterator[str]:
    path = f"nodeSelectorTerms[{number}]"
    for place, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _label_fault(f"{path}.matchExpressions[{place}]", requirement)
    for place, requirement in enumerate(term.get("matchFields") or ()):
        yield from _field_fault(f"{path}.matchFields[{place}]", requirement)


def _label_fault(path: str, requirement: Object) -> Iterator[str]:
    operator, values = requirement["operator"], requirement.get("values") or []
    if operator not in _LABEL_OPERATORS:
        yield _unsupported(path, operator, _LABEL_OPERATORS)
    elif operator in ("In", "NotIn") and not values:
        yield (
            f"{path}.values: Invalid value: []:"
            " for 'in', 'notin' operators, values set can't be empty"
        )
    elif operator in ("Exists", "DoesNotExist") and values:
        yield (
            f"{path}.values: Invalid value: {_go_list(values)}:"
            " values set must be empty for exists and does not exist"
        )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield (
                f"{path}.values: Invalid value: {_go_list(values)}:"
                " for 'Gt', 'Lt' operators, exactly one value is required"
            )
        for place, value in enumerate(values):
            if not _INTEGER.match(value):
                yield (
                    f"{path}.values[{place}]: Invalid value: {json.dumps(value)}:"
                    " for 'Gt', 'Lt' operators, the value must be an integer"
                )


def _field_fault(path: str, requirement: Object) -> Iterator[str]:
    operator, values = requirement["operator"], requirement.get("values") or []
    if operator not in _FIELD_OPERATORS:
        yield _unsupported(path, operator, _FIELD_OPERATORS)
    elif len(values) != 1:
        yield f"{path}.values: Invalid value: {_go_list(values)}: must have one element"


def _unsupported(path: str, operator: str, known: Sequence[str]) -> str:
    supported = ", ".join(json.dumps(each) for each in known)
    return (
        f"{path}.operator: Unsupported value: {json.dumps(operator)}: supported values: {supported}"
    )


def _go_list(values: Sequence[str]) -> str:
    return json.dumps(list(values), separators=(",", ":"))


def _go_text(selector: Object) -> str:
    """Return the text of the generated Go method ``NodeSelector.String``."""
    terms = "".join(
        f"NodeSelectorTerm{{MatchExpressions:{_go_requirements(term.get('matchExpressions'))},"
        f"MatchFields:{_go_requirements(term.get('matchFields'))},}},"
        for term in selector.get("nodeSelectorTerms") or ()
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _go_requirements(requirements: Sequence[Object] | None) -> str:
    texts = "".join(
        f"NodeSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:{go_printed(each.get('values') or [])},}},"
        for each in requirements or ()
    )
    return f"[]NodeSelectorRequirement{{{texts}}}"
