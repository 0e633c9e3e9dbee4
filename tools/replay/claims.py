"""Replay vectors of structured claims: values, constraints, validation, allocations.

Vectors become documents, which are read and validated like a user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from devicemanager.claims import cel
from devicemanager.claims.attributes import AttributeValue, SemVer
from devicemanager.claims.core.inventory import DeviceKey
from devicemanager.claims.errors import CompileError, EvaluationError, InvalidObject
from devicemanager.claims.pod_claims import dynamic_resource
from devicemanager.claims.v1alpha1.fields import Fields
from devicemanager.claims.v1alpha1.objects import Attribute
from devicemanager.claims.v1alpha1.reading import read_attribute, read_object
from devicemanager.core.quantity import Quantity, round_down, round_up, whole_units
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import ManifestError
from tools.replay import claims_alloc
from tools.replay.report import Outcome, ReplayError, difference

FORMAT = "claims-vectors/1"

Row = Any


def replay_file(path: Path) -> Iterator[Outcome]:
    """Replay all rows of a file. Raises ReplayError if the file has a different format."""
    try:
        documents = load_documents(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReplayError(f"{path}: is not UTF-8 at byte {error.start}") from error
    except ManifestError as error:
        raise ReplayError(f"{path}: {error}") from error
    vectors = documents[0] if len(documents) == 1 else None
    if not isinstance(vectors, dict) or vectors.get("format") != FORMAT:
        raise ReplayError(f"{path}: is not a file of format {FORMAT}")
    return replay_vectors(vectors)


def replay_vectors(vectors: Mapping[str, Any]) -> Iterator[Outcome]:
    """Replay all rows of all sections."""
    if unknown := vectors.keys() - _SECTIONS.keys() - {"format"}:
        raise ReplayError(f"unknown section {min(unknown)}")
    for section, differences in _SECTIONS.items():
        for number, row in enumerate(vectors.get(section) or ()):
            name = row["id"] if isinstance(row, dict) and "id" in row else f"{section}[{number}]"
            try:
                yield Outcome(name, differences(row))
            except (KeyError, TypeError, IndexError, AttributeError) as error:
                raise ReplayError(f"row {name} is malformed: {error!r}") from error


def _cel(row: Row) -> list[str]:
    want = row["want"]
    if isinstance(want, dict):
        want = want["devmgmt"]
    return difference(row["expr"], want, _evaluated(row))


def _evaluated(row: Row) -> object:
    try:
        expression = cel.compile_v1alpha1(row["expr"])
        return True if expression is None else expression.matches(_values(row["attrs"]))
    except CompileError:
        return "compile-error"
    except EvaluationError:
        return "runtime-error"


def _values(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    return {name: _attribute(value).values()[0] for name, value in attributes.items()}


def _attribute(values: Mapping[str, Any]) -> Attribute:
    return read_attribute(Fields(claims_alloc.attribute("x", values), "", []))


def _equal(row: Row) -> list[str]:
    one, other, want = row
    # In both directions, because equality must be symmetric.
    found = _attribute(one).equals(_attribute(other)), _attribute(other).equals(_attribute(one))
    return difference(f"{one} and {other}", (want, want), found)


def _round(row: Row) -> list[str]:
    amount, block, up, down = [Quantity.parse(text).nanos for text in row]
    found = round_up(amount, block), round_down(amount, block)
    return difference("rounded up and down", (up, down), found)


def _quantity(row: Row) -> list[str]:
    text, *want = row
    try:
        amount = Quantity.parse(text)
    except ValueError:
        return difference(text, want, ["error", None])
    return difference(text, want, [str(amount), whole_units(amount.nanos)])


def _semver(row: Row) -> list[str]:
    left, want, right = row
    one, other = SemVer.parse(left), SemVer.parse(right)
    found = "<" if one < other else ">" if one > other else "="
    return difference(f"{left} and {right}", want, found)


def _validation(row: Row) -> list[str]:
    ((kind, short),) = row["object"].items()
    try:
        read_object(_DOCUMENTS[kind](short))
        found = ""
    except InvalidObject as error:
        found = str(error)
    if (not found) == row["valid"]:
        return []
    return [f"valid: expected {row['valid']}, actual {found or True}"]


_DOCUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "claim": claims_alloc.claim,
    "class": lambda short: claims_alloc.device_class("c", short),
    "pool": claims_alloc.pool,
    "deviceStatus": claims_alloc.device_status,
}


def _podresources(row: Row) -> list[str]:
    namespace, _, name = row["claim"].partition("/")
    keys = {
        f"{pool}/{device}": DeviceKey(row["drivers"][pool], pool, device)
        for pool, device in row["allocations"]
    }
    cdi = {keys[place]: tuple(ids) for place, ids in row["cdi"].items()}
    found = dynamic_resource(namespace, name, keys.values(), cdi)
    return difference("dynamic_resources", row["want"], _shown(found))


def _shown(resource: Any) -> object:
    if resource is None:
        return "absent"
    return {
        "claim_name": resource.claim_name,
        "claim_namespace": resource.claim_namespace,
        "claim_resources": [
            {
                "driver_name": each.driver_name,
                "pool_name": each.pool_name,
                "device_name": each.device_name,
                "cdi_devices": [{"name": name} for name in each.cdi_devices],
            }
            for each in resource.claim_resources
        ],
    }


_SECTIONS: Mapping[str, Callable[[Row], list[str]]] = {
    "alloc": claims_alloc.scenario_differences,
    "cel": _cel,
    "equal": _equal,
    "round": _round,
    "quantity": _quantity,
    "semver": _semver,
    "validation": _validation,
    "podresources": _podresources,
}
