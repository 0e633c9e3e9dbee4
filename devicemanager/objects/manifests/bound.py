"""Pods that an API server has accepted: it has checked them, and may know more than we do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devicemanager.core.pods import Pod
from devicemanager.objects.manifests.errors import FieldError, ManifestError, plain
from devicemanager.objects.manifests.fields import CONTAINER, POD_SPEC, RESOURCES
from devicemanager.objects.manifests.spec import pod_from, stable_uid

__all__ = ["bound_pod"]


def bound_pod(found: Mapping[str, Any]) -> Pod:
    """The pod of an object of the API; fields that we do not know are left out.

    Raises ManifestError for what can be no pod.
    """
    try:
        return pod_from(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": found.get("metadata"),
                "spec": _spec(found.get("spec")),
                "status": found.get("status"),
            },
            stable_uid,
        )
    except FieldError as error:
        meta = found.get("metadata") or {}
        name = plain(f"{meta.get('namespace')}/{meta.get('name')}")
        raise ManifestError(f"pod {name}: {error}") from None


def _spec(spec: object) -> object:
    if not isinstance(spec, Mapping):
        return spec
    known = {name: value for name, value in spec.items() if name in POD_SPEC}
    for field in ("containers", "initContainers"):
        if isinstance(known.get(field), list):
            known[field] = [_container(each) for each in known[field]]
    return known


def _container(container: object) -> object:
    if not isinstance(container, Mapping):
        return container
    known = {name: value for name, value in container.items() if name in CONTAINER}
    resources = known.get("resources")
    if isinstance(resources, Mapping):
        known["resources"] = {name: value for name, value in resources.items() if name in RESOURCES}
    return known
