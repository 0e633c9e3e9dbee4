"""Read ResourceClaims of ``resource.k8s.io`` from a dict, YAML text, a path, or an object of the
package ``kubernetes``.

v1, v1beta2 and v1beta1 are accepted and converted to v1. The fields of ``status`` are the same in
all three versions. In v1beta1, the fields of ``exactly`` are directly in the request
(``pkg/apis/resource/v1beta1``, v1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import ManifestError, described, plain
from devicemanager.objects.manifests.sources import client_object, text_of

__all__ = [
    "DRA_KINDS",
    "OFFERED",
    "ClaimSources",
    "JsonClaim",
    "read_dra_objects",
    "read_resource_claims",
]

JsonClaim = dict[str, Any]
"""ResourceClaim of v1, as JSON data."""

ClaimSources = Mapping[str, Any] | str | Path | Iterable[Any] | object
"""One or more ResourceClaims: a dict, YAML text, a path, or an object of the package
``kubernetes``; or an iterable of these."""

_GROUP = "resource.k8s.io/"
_VERSIONS = ("v1", "v1beta2", "v1beta1")
OFFERED = ("ResourceSlice", "DeviceClass", "ResourceClaimTemplate")
"""Kinds in ``resource.k8s.io``, except ResourceClaim, whose objects a test can pass to a
MockKubelet without an API server."""
DRA_KINDS = ("ResourceClaim", *OFFERED)
"""Kinds in ``resource.k8s.io`` whose objects a test can pass to a MockKubelet without an API
server."""
_EXPECTED = "invalid ResourceClaim: expected a dict, YAML text, a path or a client's object"


def read_resource_claims(source: ClaimSources) -> tuple[JsonClaim, ...]:
    """Return the ResourceClaims of ``source`` in v1, in the order of ``source``.

    In YAML, documents of other kinds are ignored. Raises ManifestError with one line: name of the
    claim, field and reason.
    """
    return tuple(map(as_v1, _documents(source)))


def read_dra_objects(source: ClaimSources) -> tuple[JsonClaim, ...]:
    """Return ResourceClaims, ResourceSlices, DeviceClasses and ResourceClaimTemplates in v1.

    Accepts a dict, YAML text, a path or an iterable of these. Claims can also be of v1beta1 or
    v1beta2. Raises ManifestError for any other kind or version, and for an invalid claim.
    """
    return tuple(map(_dra_object, _all_documents(source)))


def _all_documents(source: ClaimSources) -> Iterator[object]:
    if isinstance(source, str | Path):
        yield from load_documents(text_of(source))
    # A mapping is iterable, too, but stands for one object.
    elif isinstance(source, Iterable) and not isinstance(source, Mapping):
        for each in source:
            yield from _all_documents(each)
    else:
        yield source


def _dra_object(document: object) -> JsonClaim:
    if not isinstance(document, Mapping):
        raise ManifestError(f"expected an object of {_GROUP}v1, not {described(document)}")
    if is_claim(document):
        return as_v1(document)
    kind = document.get("kind")
    if kind not in OFFERED:
        kinds = ", ".join(DRA_KINDS)
        raise ManifestError(f"invalid kind {described(kind)}: use one of {kinds}")
    if document.get("apiVersion") != f"{_GROUP}v1":
        raise ManifestError(f"{kind}: apiVersion must be {_GROUP}v1")
    metadata, spec = _mapping(document, "metadata", kind), _mapping(document, "spec", kind)
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise ManifestError(f"{kind}: metadata.name is required")
    where = f"{kind} {plain(metadata['name'])}"
    _text(metadata, "namespace", f"{where}: metadata")
    if kind == "ResourceSlice":
        _check_slice(spec, f"{where}: spec")
    return {**document, "metadata": {**metadata}, "spec": {**spec}}


def _check_slice(spec: Mapping[str, Any], where: str) -> None:
    """Check the types of those fields that are shown in lists and views of slices. Raises
    ManifestError."""
    pool = _mapping(spec, "pool", where)
    for parent, fields, name in (
        (spec, ("driver", "nodeName"), where),
        (pool, ("name",), f"{where}.pool"),
    ):
        for field in fields:
            _text(parent, field, name)
    if not isinstance(pool.get("generation", 0), int):
        raise ManifestError(f"{where}.pool.generation must be a whole number")
    for field in ("devices", "sharedCounters"):
        for index, each in enumerate(_list(spec, field, where)):
            _text(each, "name", f"{where}.{field}[{index}]")


def _documents(source: ClaimSources) -> Iterator[Mapping[Any, Any]]:
    # Tested before Iterable, because mappings and strings are iterable, too.
    if isinstance(source, Mapping):
        yield source
    elif isinstance(source, str | Path):
        for each in load_documents(text_of(source)):
            if isinstance(each, Mapping) and is_claim(each):
                yield each
    elif type(source).__module__.startswith("kubernetes."):
        yield {**client_object(source), **_version_of(source)}
    elif isinstance(source, Iterable):
        for each in source:
            yield from _documents(each)
    else:
        raise ManifestError(f"{_EXPECTED}, not {described(source)}")


def is_claim(document: Mapping[Any, Any]) -> bool:
    """True if the document is a ResourceClaim."""
    return document.get("kind") == "ResourceClaim"


def _version_of(claim: object) -> dict[str, str]:
    """Return kind and apiVersion of a client's object, such as ``V1beta1ResourceClaim``. Raises
    ManifestError for another object."""
    name = type(claim).__name__
    for version in _VERSIONS:
        if name == f"{version.capitalize()}ResourceClaim":
            return {"apiVersion": f"{_GROUP}{version}", "kind": "ResourceClaim"}
    raise ManifestError(f"expected a ResourceClaim, not {name}")


def as_v1(document: Mapping[Any, Any]) -> JsonClaim:
    """Check a ResourceClaim and return it in v1. Raises ManifestError for an invalid claim."""
    if not is_claim(document):
        raise ManifestError(f"expected kind: ResourceClaim, not {described(document.get('kind'))}")
    version = document.get("apiVersion")
    if version not in [f"{_GROUP}{each}" for each in _VERSIONS]:
        versions = ", ".join(f"{_GROUP}{each}" for each in _VERSIONS)
        raise ManifestError(f"ResourceClaim: apiVersion must be one of {versions}")
    metadata = _mapping(document, "metadata", "ResourceClaim")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ManifestError("ResourceClaim: metadata.name is required")
    where = f"ResourceClaim {plain(name)}"
    for field in ("namespace", "uid"):
        if not isinstance(metadata.get(field), str | None):
            raise ManifestError(f"{where}: metadata.{field} must be a string")
    _check_status(_mapping(document, "status", where), where)
    claim = {**document, "apiVersion": f"{_GROUP}v1", "metadata": {**metadata}}
    # In v1beta2, the spec already has the structure of v1.
    if version == f"{_GROUP}v1beta1":
        claim["spec"] = _spec_of_beta(_mapping(document, "spec", where), where)
    return claim


def _check_status(status: Mapping[str, Any], where: str) -> None:
    for index, each in enumerate(_list(status, "reservedFor", f"{where}: status")):
        _text(each, "uid", f"{where}: status.reservedFor[{index}]")
    allocation = status.get("allocation")
    if allocation is None:
        return
    devices = _mapping(status, "allocation", f"{where}: status").get("devices")
    if devices is None:
        return
    field = f"{where}: status.allocation.devices"
    devices = _mapping({"devices": devices}, "devices", f"{where}: status.allocation")
    for index, each in enumerate(_list(devices, "results", field)):
        for name in ("driver", "pool", "device", "request"):
            _text(each, name, f"{field}.results[{index}]")
        if not each.get("pool"):
            raise ManifestError(
                f"{field}.results[{index}].pool is required: use the name of the pool in the "
                "ResourceSlices of the driver"
            )


def _spec_of_beta(spec: Mapping[str, Any], where: str) -> dict[str, Any]:
    devices = _mapping(spec, "devices", f"{where}: spec")
    if "requests" not in devices:
        return {**spec}
    requests = _list(devices, "requests", f"{where}: spec.devices")
    return {**spec, "devices": {**devices, "requests": [*map(_request_of_beta, requests)]}}


def _request_of_beta(request: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: request[name] for name in ("name", "firstAvailable") if name in request}
    exactly = {name: each for name, each in request.items() if name not in kept}
    # A request with ``firstAvailable`` must not get an empty ``exactly``: v1 allows only one.
    return {**kept, "exactly": exactly} if exactly else kept


def _mapping(parent: Mapping[Any, Any], field: str, where: str) -> Mapping[str, Any]:
    value = parent.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ManifestError(f"{where}: {field} must be a mapping, not {described(value)}")
    return value


def _list(parent: Mapping[Any, Any], field: str, where: str) -> list[Mapping[str, Any]]:
    value = parent.get(field)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(x, Mapping) for x in value):
        raise ManifestError(f"{where}.{field} must be a list of mappings")
    return list(value)


def _text(parent: Mapping[str, Any], field: str, where: str) -> None:
    if not isinstance(parent.get(field), str | None):
        raise ManifestError(f"{where}.{field} must be a string")
