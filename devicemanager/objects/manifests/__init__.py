"""Parse pod manifests: a dict, YAML text, a file or a client's ``V1Pod`` becomes a
``core.pods.Pod``.

``parse`` finds the Pod document, and ``spec.pod_from`` validates it. ``bound_pod`` reads a Pod
that an API server has already validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devicemanager.core.pods import Pod
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import (
    FieldError,
    ManifestError,
    described,
    plain,
)
from devicemanager.objects.manifests.fields import EPHEMERAL, POD_SPEC, RESOURCES
from devicemanager.objects.manifests.sources import client_object, path_in, read
from devicemanager.objects.manifests.spec import DefaultUid, pod_from, stable_uid

__all__ = [
    "DefaultUid",
    "ManifestError",
    "Source",
    "bound_pod",
    "document",
    "parse",
    "stable_uid",
]

Source = Mapping[str, Any] | str | Path | Pod | object
"""A pod manifest as a mapping, as YAML text, or as a path (Path or string); or a pod as a V1Pod of
the package ``kubernetes``, or as a ``core.pods.Pod``."""

_EXPECTED = "invalid manifest: expected a dict, YAML text, a path or a V1Pod"


def parse(source: Source, *, default_uid: DefaultUid = stable_uid) -> Pod:
    """Return the pod that ``source`` describes.

    If the manifest has no ``metadata.uid``, ``default_uid`` is called with namespace and name, and
    returns the UID. Raises ManifestError with one line: file, field and reason.
    """
    try:
        if isinstance(source, Pod):
            return source
        if isinstance(source, Mapping):
            return pod_from(source, default_uid)
        if isinstance(source, str):
            path = path_in(source)
            return (
                _from_text(source, default_uid)
                if path is None
                else parse(path, default_uid=default_uid)
            )
        if isinstance(source, Path):
            return _from_file(source, default_uid)
        # Tested by name, because importing ``kubernetes`` takes a quarter of a second.
        if type(source).__module__.startswith("kubernetes."):
            return pod_from(_from_client(source), default_uid)
    except FieldError as error:
        raise ManifestError(str(error)) from None
    raise ManifestError(f"{_EXPECTED}, not {described(source)}")


def document(source: Source) -> Mapping[Any, Any] | str:
    """Return the manifest of ``source``, as a mapping or as text, without validating it.

    Clients use this to send a manifest to another program. Raises ManifestError for an invalid
    source. Also raises ManifestError for a ``core.pods.Pod``, because it cannot be converted back
    to a manifest.
    """
    if isinstance(source, Mapping):
        return source
    path = path_in(source) if isinstance(source, str) else source
    if path is None:
        return str(source)
    try:
        if isinstance(path, Path):
            return read(path)
        if type(source).__module__.startswith("kubernetes."):
            return _from_client(source)
    except ManifestError as error:
        where = f"{plain(str(path))}: " if isinstance(path, Path) else ""
        raise ManifestError(f"{where}{error}") from None
    raise ManifestError(f"{_EXPECTED}, not {described(source)}")


def _from_file(path: Path, default_uid: DefaultUid) -> Pod:
    try:
        return _from_text(read(path), default_uid)
    except (ManifestError, FieldError) as error:
        raise ManifestError(f"{plain(str(path))}: {error}") from None


def _from_text(text: str, default_uid: DefaultUid) -> Pod:
    documents = load_documents(text)
    if not documents:
        raise ManifestError("empty: expected a manifest with apiVersion: v1 and kind: Pod")
    # Documents of other kinds are ignored, so that one file can hold a Pod and its claims.
    pods = [each for each in documents if isinstance(each, Mapping) and each.get("kind") == "Pod"]
    if len(pods) > 1:
        raise ManifestError(f"contains {len(pods)} pods: use one file for each Pod")
    if not pods and len(documents) > 1:
        raise ManifestError(f"contains {len(documents)} documents, but none of kind Pod: add a Pod")
    # A single document of another kind is passed on: ``pod_from`` reports its kind.
    document = pods[0] if pods else documents[0]
    if not isinstance(document, Mapping):
        raise ManifestError(f"must be a mapping with kind: Pod, not {described(document)}")
    return pod_from(document, default_uid)


def _from_client(pod: object) -> Mapping[Any, Any]:
    """Convert a client's ``V1Pod`` to JSON values, and add kind and apiVersion.

    The client omits these two fields.
    """
    found = client_object(pod)
    if type(pod).__name__ != "V1Pod":
        raise ManifestError(f"expected a V1Pod, not {type(pod).__name__}")
    return {"apiVersion": "v1", "kind": "Pod", **found}


# -- pods of an API server -----------------------------------------------------------------


def bound_pod(found: Mapping[str, Any]) -> Pod:
    """Convert a Pod object from an API server to a ``core.pods.Pod``. Ignore unknown fields.

    The API server has validated the object, and can be newer than the list of known fields. An
    unknown field is therefore not an error. Raises ManifestError for a malformed Pod.
    """
    try:
        return pod_from(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": found.get("metadata"),
                "spec": _known_spec(found.get("spec")),
                "status": found.get("status"),
            },
            stable_uid,
        )
    except FieldError as error:
        meta = found.get("metadata") or {}
        name = plain(f"{meta.get('namespace')}/{meta.get('name')}")
        raise ManifestError(f"pod {name}: {error}") from None


def _known_spec(spec: object) -> object:
    if not isinstance(spec, Mapping):
        return spec
    known = {name: value for name, value in spec.items() if name in POD_SPEC}
    for field in ("containers", "initContainers", "ephemeralContainers"):
        if isinstance(known.get(field), list):
            known[field] = [_known_container(each) for each in known[field]]
    return known


def _known_container(container: object) -> object:
    if not isinstance(container, Mapping):
        return container
    known = {name: value for name, value in container.items() if name in EPHEMERAL}
    resources = known.get("resources")
    if isinstance(resources, Mapping):
        known["resources"] = {name: value for name, value in resources.items() if name in RESOURCES}
    return known
