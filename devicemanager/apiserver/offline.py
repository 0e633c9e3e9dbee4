"""Check objects of resource.k8s.io in files, as the API server does, but without a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from devicemanager.apiserver.conversion import to_stored
from devicemanager.apiserver.kinds import RESOURCE_GROUP, Kind, Kinds, Target
from devicemanager.apiserver.resources import ResourceRules
from devicemanager.apiserver.store import Object
from devicemanager.apiserver.structure import StructureError, decoded, has_structure
from devicemanager.objects.dra import FieldError

__all__ = ["Problem", "Report", "check_objects", "listed"]


@attrs.frozen
class Problem:
    """Reason why the API server would reject an object."""

    kind: str
    name: str
    """Namespace and name of the object, as ``namespace/name``."""
    field: str
    """Path of the invalid field; empty if the object cannot be decoded."""
    text: str

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        return f'{self.kind} "{self.name}": {where}{self.text}'


@attrs.define
class Report:
    """Result of ``check_objects``: the problems that it found, and notes for the user."""

    checked: int = 0
    """Number of checked objects of resource.k8s.io."""
    problems: list[Problem] = attrs.Factory(list)
    notes: list[str] = attrs.Factory(list)
    """Notes for the user: which objects were not checked, and which values are probably mistakes
    although the API server accepts them."""


def listed(value: Any) -> Iterator[Object]:
    """Yield an object, or the items of a list such as a ``ResourceSliceList``."""
    if not isinstance(value, Mapping):
        yield {"kind": "", "value": value}
        return
    kind = str(value.get("kind", ""))
    if not kind.endswith("List") or not isinstance(value.get("items"), list):
        yield dict(value)
        return
    # Items of a list from an API server have no kind.
    version = str(value.get("apiVersion", ""))
    own = {} if kind == "List" else {"apiVersion": version, "kind": kind[:-4]}
    for each in value["items"]:
        yield from listed({**own, **each} if isinstance(each, Mapping) else each)


def check_objects(values: Iterable[Object], rules: ResourceRules | None = None) -> Report:
    """Check objects as the API server does when a client creates them, and return the problems.

    The status of a claim is checked as in a request that updates the subresource ``status``.
    """
    values = list(values)
    checker = _Checker(rules or ResourceRules(), _admin_labels(values))
    for each in values:
        checker.check(each)
    checker.compare_capacity()
    return checker.report


def _admin_labels(values: list[Object]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the namespaces in the files, by namespace."""
    found = [each.get("metadata") or {} for each in values if each.get("kind") == "Namespace"]
    return {each.get("name", ""): each.get("labels") or {} for each in found}


@attrs.define
class _Checker:
    rules: ResourceRules
    namespaces: Mapping[str, Mapping[str, str]]
    report: Report = attrs.field(factory=Report, init=False)
    _devices: dict[tuple[str, str, str], Object] = attrs.field(factory=dict, init=False)
    _claims: list[Object] = attrs.field(factory=list, init=False)

    def check(self, value: Object) -> None:
        """Check one object, and add it to the report."""
        api_version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
        found = Kinds().of(api_version, kind)
        group, _, version = api_version.partition("/")
        if found is None and group == RESOURCE_GROUP and "alpha" not in version:
            text = f'no matches for kind "{kind}" in version "{api_version}"'
            self.report.checked += 1
            self.report.problems.append(Problem(kind, _name(value), "", text))
            return
        if found is None or not has_structure(api_version, kind):
            if kind != "Namespace":
                what = f"{api_version} {kind}".strip() or "a document without a kind"
                self.report.notes.append(f"{what}: not checked, not of {RESOURCE_GROUP}")
            return
        self.report.checked += 1
        name = _name(value)
        try:
            typed = decoded(value, api_version, kind, strict=True)
        except StructureError as error:
            self.report.problems.append(Problem(kind, name, "", str(error)))
            return
        broken = self._broken(found[0], api_version, typed)
        rows = [Problem(kind, name, each.field, each.text) for each in broken]
        self.report.problems += rows

    def _broken(self, kind: Kind, api_version: str, typed: Object) -> list[FieldError]:
        stored = to_stored(kind, api_version, typed)
        metadata = stored.setdefault("metadata", {})
        if "generateName" in metadata:
            metadata.setdefault("name", f"{metadata['generateName']}xxxxx")
        namespace = metadata.get("namespace", "default") if kind.namespaced else ""
        labels = self.namespaces.get(namespace, _ADMIN)
        target = Target(kind, namespace, metadata.get("name", ""), version=api_version)
        status = stored.get("status")
        self.rules.prepare(target, stored)
        broken = self.rules.broken(target, stored, None, labels)
        if kind.name == "ResourceSlice":
            self._remember(stored)
        if status:
            broken += self._broken_status(target, stored, status, labels)
        return broken

    def _broken_status(
        self, target: Target, stored: Object, status: Object, labels: Mapping[str, str]
    ) -> list[FieldError]:
        below = attrs.evolve(target, subresource="status")
        new = {**stored, "status": status}
        self.rules.prepare_status(below, new, stored)
        self._claims.append(new)
        return self.rules.broken(below, new, stored, labels)

    def _remember(self, value: Object) -> None:
        spec = value.get("spec") or {}
        pool = (spec.get("pool") or {}).get("name", "")
        for each in spec.get("devices") or ():
            self._devices[spec.get("driver", ""), pool, each.get("name", "")] = each

    def compare_capacity(self) -> None:
        """Add a note for each consumed capacity that the device's slice does not name."""
        for claim in self._claims:
            allocation = claim["status"].get("allocation") or {}
            results = (allocation.get("devices") or {}).get("results") or ()
            for number, each in enumerate(results):
                self._compare(claim, number, each)

    def _compare(self, claim: Object, number: int, result: Object) -> None:
        named = result.get("driver", ""), result.get("pool", ""), result.get("device", "")
        device = self._devices.get(named)
        if device is None:
            return
        for name in sorted(set(result.get("consumedCapacity") or ()) - set(_capacity(device))):
            self.report.notes.append(
                f'ResourceClaim "{_name(claim)}": status.allocation.devices.results[{number}]'
                f".consumedCapacity[{name}]: device {'/'.join(named)} has no such capacity: use "
                f"the names of its slice: {', '.join(_capacity(device)) or 'it has none'}"
            )


_ADMIN: Mapping[str, str] = {"resource.kubernetes.io/admin-access": "true"}
"""Labels of namespaces that are not in the files: claims in them may use admin access."""


def _capacity(device: Object) -> list[str]:
    return sorted(device.get("capacity") or ())


def _name(value: Object) -> str:
    metadata = value.get("metadata")
    if not isinstance(metadata, Mapping):
        return ""
    name = metadata.get("name") or metadata.get("generateName") or ""
    return "/".join(str(each) for each in (metadata.get("namespace"), name) if each)
