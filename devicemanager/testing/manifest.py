"""Create pod manifests for tests in which only the devices matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["pod_manifest"]


def pod_manifest(
    name: str,
    *containers: Mapping[str, int | str],
    init: Sequence[Mapping[str, int | str]] = (),
    claims: Sequence[str] = (),
    namespace: str = "default",
    uid: str | None = None,
) -> dict[str, Any]:
    """Return the manifest of a pod, with one mapping of ``resources.limits`` per container.

    ``pod_manifest("train", {"vendor.com/gpu": 2})`` has one container, ``main``. Further containers
    are named ``main-2``, ``main-3``; init containers are named ``init``, ``init-2``. ``claims`` are
    names of existing ResourceClaims or structured claims (docs/claims.md) that all containers use.
    Without ``uid``, the kubelet derives a UID from namespace and name.
    """
    metadata = {"name": name, "namespace": namespace}
    if uid is not None:
        metadata["uid"] = uid
    # A pod without limits still needs a container.
    spec = {"containers": _containers("main", containers or ({},), claims)}
    if init:
        spec["initContainers"] = _containers("init", init, claims)
    if claims:
        spec["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _containers(
    name: str, limits: Sequence[Mapping[str, int | str]], claims: Sequence[str]
) -> list[dict[str, Any]]:
    used: dict[str, Any] = {"claims": [{"name": each} for each in claims]} if claims else {}
    return [
        {
            "name": name if number == 1 else f"{name}-{number}",
            # The API server requires an image, but the mock kubelet pulls none.
            "image": "registry.example/image",
            "resources": {"limits": dict(each), **used},
        }
        for number, each in enumerate(limits, start=1)
    ]
