"""A decoded manifest into a pod, validated as the API server does for what matters.

Order, rules and texts follow ``ValidatePodCreate`` (pkg/apis/core/validation, v1.32);
the first error ends it. What device allocation never looks at is not looked at here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from devicemanager.core.api.names import is_dns1123_subdomain
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, RestartPolicy
from devicemanager.objects.manifests.claims import (
    check_claims_exist,
    read_container_claims,
    read_pod_claims,
)
from devicemanager.objects.manifests.errors import (
    FieldError,
    invalid,
    required,
    unsupported,
    wrong_type,
)
from devicemanager.objects.manifests.fields import CONTAINER, POD_SPEC, check_known
from devicemanager.objects.manifests.resources import read_resources

DefaultUid = Callable[[str, str], str]
"""Namespace and name of a pod without ``metadata.uid`` to the uid it gets."""

_MAX_LABEL = 63
_MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_NO_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_NO_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character"
)
_RESTART_POLICIES = tuple(str(policy) for policy in RestartPolicy)


@lru_cache(maxsize=4096)
def stable_uid(namespace: str, name: str) -> str:
    """A uid that is the same for this name at every start, in the form of a UUID.

    A static pod keeps its devices over a kubelet restart only if its uid stays. The
    kubelet, too, derives a static pod's uid from what is known of it
    (``applyDefaults``, pkg/kubelet/config/common.go, v1.32).
    """
    digest = hashlib.sha256(f"pod/{namespace}/{name}".encode()).digest()[:16]
    number = int.from_bytes(digest, "big")
    # Version 8 is the one that RFC 9562 leaves to the application.
    number = number & ~(0xF << 76) | 8 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def pod_from(manifest: Mapping[Any, Any], default_uid: DefaultUid) -> Pod:
    """The pod that a decoded manifest describes. Raises FieldError."""
    _check_kind(manifest)
    name, namespace, uid = _identity(manifest.get("metadata"), default_uid)
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise required("spec") if spec is None else wrong_type("spec", "a mapping", spec)
    taken: set[str] = set()
    try:
        check_known(spec, POD_SPEC)
        claims = read_pod_claims(spec.get("resourceClaims"), _check_label, _check_subdomain)
        containers = _containers("containers", spec.get("containers"), taken, claims)
        if not containers:
            raise required("containers")
        init_containers = _containers("initContainers", spec.get("initContainers"), taken, claims)
        restart_policy = _restart_policy(spec.get("restartPolicy")) or RestartPolicy.ALWAYS
        grace = _grace_period(spec.get("terminationGracePeriodSeconds"))
        resources = spec.get("resources")
        if not (resources is None or isinstance(resources, Mapping)):
            raise wrong_type("resources", "a mapping", resources)
    except FieldError as error:
        raise error.under("spec") from None
    return Pod(
        PodUid(uid),
        name,
        namespace,
        containers,
        init_containers,
        restart_policy,
        claims,
        grace,
        bool(resources),
        _backed(manifest.get("status")),
    )


def _backed(status: object) -> frozenset[tuple[ContainerName, ResourceName]]:
    if status is None:
        return frozenset()
    from devicemanager.objects.manifests.status import read_backed

    try:
        return read_backed(status)
    except FieldError as error:
        raise error.under("status") from None


def _check_kind(manifest: Mapping[Any, Any]) -> None:
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if kind == "Pod" and version == "v1":
        return
    if kind is None:
        raise required("kind", "a manifest begins with apiVersion: v1 and kind: Pod")
    if isinstance(kind, str) and kind.endswith("List"):
        raise FieldError("kind", f"a {kind} is not supported: give each Pod a file of its own")
    if kind != "Pod":
        raise unsupported("kind", kind, "Pod")
    if version is None:
        raise required("apiVersion", "a Pod is of apiVersion v1")
    raise unsupported("apiVersion", version, "v1")


def _identity(metadata: object, default_uid: DefaultUid) -> tuple[str, str, str]:
    """Name, namespace and uid."""
    if metadata is None:
        raise required("metadata.name")
    if not isinstance(metadata, Mapping):
        raise wrong_type("metadata", "a mapping", metadata)
    name = metadata.get("name")
    if name is None or name == "":
        unnamed = "generateName" in metadata
        raise required("metadata.name", "generateName needs an API server" if unnamed else "")
    namespace = metadata.get("namespace")
    if namespace is None or namespace == "":
        namespace = "default"
    _check_name("metadata.name", name, _subdomain_fault)
    _check_name("metadata.namespace", namespace, _label_fault)
    uid = metadata.get("uid")
    if uid is None:
        return name, namespace, default_uid(namespace, name)
    _check_name("metadata.uid", uid, _uid_fault)
    return name, namespace, uid


def _containers(
    field: str, items: object, taken: set[str], claims: Collection[str]
) -> tuple[Container, ...]:
    if items is None:
        return ()
    if not isinstance(items, (list, tuple)):
        raise wrong_type(field, "a list", items)
    is_init = field == "initContainers"
    containers = []
    for index, item in enumerate(items):
        try:
            containers.append(_container(item, is_init, taken, claims))
        except FieldError as error:
            raise error.under(f"{field}[{index}]") from None
    return tuple(containers)


def _container(item: object, is_init: bool, taken: set[str], claims: Collection[str]) -> Container:
    if not isinstance(item, Mapping):
        raise wrong_type("", "a mapping", item)
    check_known(item, CONTAINER)
    name = item.get("name")
    if name is None or name == "":
        raise required("name")
    _check_name("name", name, _label_fault)
    if name in taken:
        raise FieldError("name", f'Duplicate value: "{name}"')
    taken.add(name)
    image = _image(item.get("image"))
    try:
        limits, requests = read_resources(item.get("resources"))
        used = read_container_claims(item.get("resources"))
        check_claims_exist(used, claims)
    except FieldError as error:
        raise error.under("resources") from None
    # Only on an init container does Always make a sidecar of it.
    policy = _restart_policy(item.get("restartPolicy"))
    restartable = is_init and policy is RestartPolicy.ALWAYS
    return Container(ContainerName(name), limits, requests, restartable, used, image)


def _restart_policy(policy: object) -> RestartPolicy | None:
    if policy is None:
        return None
    if policy not in _RESTART_POLICIES:
        raise unsupported("restartPolicy", policy, *_RESTART_POLICIES)
    return RestartPolicy(policy)


def _grace_period(seconds: object) -> int:
    if seconds is None:
        return 30  # the API server's default
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise wrong_type("terminationGracePeriodSeconds", "a whole number", seconds)
    return max(seconds, 1)  # what the API server makes of a negative one, and the kubelet of 0


def _image(image: object) -> str:
    """Nothing is run here; but a pod without an image never gets to a node."""
    if image is None or image == "":
        raise required("image")
    if not isinstance(image, str):
        raise wrong_type("image", "a string", image)
    return image


def _check_name(field: str, value: object, fault_of: Callable[[str], str]) -> None:
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, (bool, int, float)) else ""
        error = wrong_type(field, "a string", value)
        raise FieldError(error.field, error.text + hint)
    if fault := fault_of(value):
        raise invalid(field, value, fault)


def _check_label(field: str, value: object) -> None:
    _check_name(field, value, _label_fault)


def _check_subdomain(field: str, value: object) -> None:
    _check_name(field, value, _subdomain_fault)


@lru_cache(maxsize=4096)
def _subdomain_fault(name: str) -> str:
    """What is wrong with a DNS-1123 subdomain; empty if nothing is."""
    if len(name) > _MAX_NAME:
        return f"must be no more than {_MAX_NAME} characters"
    return "" if is_dns1123_subdomain(name) else _NO_SUBDOMAIN


@lru_cache(maxsize=4096)
def _label_fault(name: str) -> str:
    """What is wrong with a DNS-1123 label; empty if nothing is."""
    if len(name) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    return "" if _LABEL.match(name) else _NO_LABEL


@lru_cache(maxsize=4096)
def _uid_fault(uid: str) -> str:
    """What is wrong with a uid: the kubelet names directories after it."""
    if not uid or uid in (".", ".."):
        return "must be a name that can be a directory's"
    if len(uid) > _MAX_NAME:
        return f"must be no more than {_MAX_NAME} characters"
    return (
        "" if uid.isprintable() and "/" not in uid else "must not contain '/' or control characters"
    )
