"""Create DRA objects for tests.

The names of the functions and objects follow the builder in Kubernetes' end-to-end tests
(``test/e2e/dra/utils/builder.go``, v1.36).

The functions return API objects of the versions ``v1`` and ``resource.k8s.io/v1`` as JSON values.
``MockKubelet.resource_claims.load``, ``MockKubelet.admit``, ``FakeApiServer`` and the package
``kubernetes`` accept these objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.testing.manifest import pod_manifest

__all__ = [
    "claim_spec",
    "claim_template",
    "device_class",
    "external_claim",
    "parameters_env",
    "pod_external",
    "pod_inline",
    "pod_inline_multiple",
    "resource_slice",
]

_GROUP = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
"""Default driver name of the functions in this module, and of the fixture ``simulated_driver``."""
_ENTRY = "my-inline-claim"
_REQUEST = "my-request"

Object = dict[str, Any]


def _object(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "") -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": _GROUP, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def parameters_env(driver: str = DRIVER, **env: str) -> Object:
    """Return an opaque device configuration for a driver, with the parameters ``env``.

    Pass the result to ``device_class`` or ``claim_spec`` as ``config``. The driver of Kubernetes'
    end-to-end tests sets the parameters as environment variables in the containers.
    """
    return {"opaque": {"driver": driver, "parameters": json.loads(json.dumps(env))}}


def device_class(
    name: str = DRIVER,
    driver: str = DRIVER,
    *,
    config: Mapping[str, Any] | None = None,
    extended_resource: str | None = None,
) -> Object:
    """Return a DeviceClass that selects all devices of a driver.

    ``extended_resource`` is a name such as ``vendor.com/gpu``, under which pods can also request
    the devices.
    """
    spec: Object = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
    if config is not None:
        spec["config"] = [dict(config)]
    if extended_resource is not None:
        spec["extendedResourceName"] = extended_resource
    return _object("DeviceClass", name, spec)


def claim_spec(
    device_class: str = DRIVER,
    count: int = 1,
    *,
    request: str = _REQUEST,
    selector: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Object:
    """Return the spec of a ResourceClaim: one request for ``count`` devices of a class.

    ``selector`` is a CEL expression that the devices must meet.
    """
    exactly: Object = {"deviceClassName": device_class, "count": count}
    if selector is not None:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    devices: Object = {"requests": [{"name": request, "exactly": exactly}]}
    if config is not None:
        devices["config"] = [{"requests": [request], **config}]
    return {"devices": devices}


def external_claim(
    name: str = "external-claim", spec: Mapping[str, Any] | None = None, namespace: str = "default"
) -> Object:
    """Return a ResourceClaim that pods can share; the default ``spec`` is ``claim_spec()``.

    The claim is not allocated.
    """
    return _object("ResourceClaim", name, spec or claim_spec(), namespace)


def claim_template(
    name: str, spec: Mapping[str, Any] | None = None, namespace: str = "default"
) -> Object:
    """Return a ResourceClaimTemplate; ``spec`` is the spec of its claims."""
    return _object("ResourceClaimTemplate", name, {"spec": dict(spec or claim_spec())}, namespace)


def pod_inline(
    name: str = "tester", spec: Mapping[str, Any] | None = None, namespace: str = "default"
) -> tuple[Object, Object]:
    """Return a pod with one container and one claim, and the template of the claim.

    The template has the name of the pod. ``spec`` is the spec of the claim.
    """
    template = claim_template(name, spec, namespace)
    entry = {"name": _ENTRY, "resourceClaimTemplateName": name}
    return _pod(name, namespace, entry, 1), template


def pod_inline_multiple(
    name: str = "tester",
    spec: Mapping[str, Any] | None = None,
    containers: int = 3,
    namespace: str = "default",
) -> tuple[Object, Object]:
    """Return a pod whose containers share one claim, and the template of the claim."""
    _, template = pod_inline(name, spec, namespace)
    entry = {"name": _ENTRY, "resourceClaimTemplateName": name}
    return _pod(name, namespace, entry, containers), template


def pod_external(
    claim: str = "external-claim", name: str = "tester", namespace: str = "default"
) -> Object:
    """Return a pod with one container that uses an existing ResourceClaim."""
    return _pod(name, namespace, {"name": _ENTRY, "resourceClaimName": claim}, 1)


def _pod(name: str, namespace: str, entry: Mapping[str, str], containers: int) -> Object:
    pod = pod_manifest(name, namespace=namespace)
    pod["spec"]["resourceClaims"] = [dict(entry)]
    (first,) = pod["spec"]["containers"]
    # The container names of Kubernetes' own end-to-end tests.
    names = ["with-resource", *(f"with-resource-{number}" for number in range(1, containers))]
    uses = {"claims": [{"name": entry["name"]}]}
    pod["spec"]["containers"] = [{**first, "name": each, "resources": uses} for each in names]
    return pod


def resource_slice(
    devices: Iterable[str | Mapping[str, Any]],
    driver: str = DRIVER,
    *,
    node: str = "mock",
    pool: str = "mock",
    name: str | None = None,
) -> Object:
    """Return a ResourceSlice with all devices of a pool on one node.

    Each of ``devices`` is a name, or a device object as in the API.
    """
    spec = {
        "driver": driver,
        "nodeName": node,
        # One slice is the whole pool. The scheduler does not allocate from an incomplete pool.
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": each} if isinstance(each, str) else dict(each) for each in devices],
    }
    return _object("ResourceSlice", name or f"{node}-{driver}", spec)
