"""Validate a decoded Pod manifest like the API server, and convert it to a ``core.pods.Pod``."""

# Order, rules and texts follow ``ValidatePodCreate`` (pkg/apis/core/validation, v1.32). Only
# fields that matter for device allocation are validated. Validation stops at the first error.

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from devicemanager.core.api.names import is_dns1123_subdomain
from devicemanager.core.ids import ContainerName, PodUid
from devicemanager.core.pods import Amounts, Container, Pod, RestartPolicy
from devicemanager.objects.manifests.claims import (
    check_claims_exist,
    read_claim_statuses,
    read_container_claims,
    read_extended_resource_claim,
    read_pod_claims,
)
from devicemanager.objects.manifests.errors import (
    FieldError,
    invalid,
    required,
    unsupported,
    wrong_type,
)
from devicemanager.objects.manifests.fields import CONTAINER, EPHEMERAL, POD_SPEC, check_known
from devicemanager.objects.manifests.resources import read_resources
from devicemanager.objects.manifests.restart_rules import read_restart_rules

DefaultUid = Callable[[str, str], str]
"""Function that returns the UID of a pod without ``metadata.uid``. Arguments: namespace, name."""

_MAX_LABEL = 63
_MAX_NAME = 253
# ``$`` would also match before a newline at the end of the name.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character"
)
_POD_LEVEL = frozenset(("cpu", "memory"))
_RESTART_POLICIES = tuple(str(policy) for policy in RestartPolicy)


@lru_cache(maxsize=4096)
def stable_uid(namespace: str, name: str) -> str:
    """Return a UID for a pod, derived from namespace and name, in the form of a UUID.

    The UID must not change: a static pod keeps its devices over a kubelet restart only if its
    UID stays the same. The kubelet also derives it from the manifest (``applyDefaults``,
    pkg/kubelet/config/common.go, v1.32).
    """
    digest = hashlib.sha256(f"pod/{namespace}/{name}".encode()).digest()[:16]
    number = int.from_bytes(digest, "big")
    # RFC 9562: version 8 is for application-defined UUIDs.
    number = number & ~(0xF << 76) | 8 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def pod_from(manifest: Mapping[Any, Any], default_uid: DefaultUid) -> Pod:
    """Convert a decoded manifest to a ``core.pods.Pod``. Raises FieldError for the first invalid
    field."""
    _check_kind(manifest)
    name, namespace, uid = _identity(manifest.get("metadata"), default_uid)
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise required("spec") if spec is None else wrong_type("spec", "a mapping", spec)
    # One set for all lists, because container names are unique in the whole pod.
    names: set[str] = set()
    try:
        check_known(spec, POD_SPEC)
        claims = read_pod_claims(spec.get("resourceClaims"), _check_label, _check_subdomain)
        containers = _containers("containers", spec.get("containers"), names, claims)
        if not containers:
            raise required("containers")
        init_containers = _containers("initContainers", spec.get("initContainers"), names, claims)
        ephemeral = _containers("ephemeralContainers", spec.get("ephemeralContainers"), names, ())
        restart_policy = _restart_policy(spec.get("restartPolicy")) or RestartPolicy.ALWAYS
        grace = _grace_period(spec.get("terminationGracePeriodSeconds"))
        resources = spec.get("resources")
        pod_level = _pod_level_requests(resources, (*init_containers, *containers))
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
        pod_level,
        ephemeral_containers=ephemeral,
        **_claims_in_status(manifest.get("status")),
    )


def _pod_level_requests(resources: object, containers: Iterable[Container]) -> Amounts:
    """Return the requests of ``spec.resources`` with the API's defaults.

    A resource with a limit but no request gets its limit as the request. It is omitted instead if a
    container requests the resource (``defaultPodRequests``, pkg/apis/core/v1/defaults.go, v1.34).
    """
    try:
        _, requests = read_resources(resources)
    except FieldError as error:
        raise error.under("resources") from None
    explicit = (isinstance(resources, Mapping) and resources.get("requests")) or {}
    requested = {name for container in containers for name in container.requests}
    return {
        name: amount
        for name, amount in requests.items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
        if name in explicit or name not in requested
    }


def _claims_in_status(status: object) -> dict[str, Any]:
    """Return the fields of a Pod that come from its status."""
    if status is None:
        return {}
    try:
        extended = read_extended_resource_claim(status)
        statuses = read_claim_statuses(status)
    except FieldError as error:
        raise error.under("status") from None
    return {
        "backed": frozenset((container, name) for container, name, _ in extended.requests),
        "claim_statuses": statuses,
        "extended_claim": extended.name,
        "extended_requests": extended.requests,
    }


def _check_kind(manifest: Mapping[Any, Any]) -> None:
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if kind == "Pod" and version == "v1":
        return
    if kind is None:
        raise required("kind", "a manifest begins with apiVersion: v1 and kind: Pod")
    if isinstance(kind, str) and kind.endswith("List"):
        raise FieldError("kind", f"a {kind} is not supported: use one file for each Pod")
    if kind != "Pod":
        raise unsupported("kind", kind, "Pod")
    if version is None:
        raise required("apiVersion", "the apiVersion of a Pod is v1")
    raise unsupported("apiVersion", version, "v1")


def _identity(metadata: object, default_uid: DefaultUid) -> tuple[str, str, str]:
    """Return a pod's name, namespace and UID from its metadata. Raises FieldError."""
    if metadata is None:
        raise required("metadata.name")
    if not isinstance(metadata, Mapping):
        raise wrong_type("metadata", "a mapping", metadata)
    # The API server generates the name of a pod with generateName; a kubelet does not.
    name = metadata.get("name")
    if name is None or name == "":
        hint = "generateName needs an API server" if "generateName" in metadata else ""
        raise required("metadata.name", hint)
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
    field: str, items: object, names: set[str], claims: Collection[str]
) -> tuple[Container, ...]:
    if items is None:
        return ()
    if not isinstance(items, (list, tuple)):
        raise wrong_type(field, "a list", items)
    containers = []
    for index, item in enumerate(items):
        try:
            containers.append(_container(item, field, names, claims))
        except FieldError as error:
            raise error.under(f"{field}[{index}]") from None
    return tuple(containers)


def _container(item: object, field: str, names: set[str], claims: Collection[str]) -> Container:
    if not isinstance(item, Mapping):
        raise wrong_type("", "a mapping", item)
    is_init, is_ephemeral = field == "initContainers", field == "ephemeralContainers"
    check_known(item, EPHEMERAL if is_ephemeral else CONTAINER)
    name = item.get("name")
    if name is None or name == "":
        raise required("name")
    _check_name("name", name, _label_fault)
    if name in names:
        raise FieldError("name", f'Duplicate value: "{name}"')
    names.add(name)
    image = _image(item.get("image"))
    try:
        limits, requests = read_resources(item.get("resources"))
        used = read_container_claims(item.get("resources"))
        # A container can use several requests of one claim, so a name can repeat.
        names_used = tuple(dict.fromkeys(name for name, _ in used))
        check_claims_exist(names_used, claims)
    except FieldError as error:
        raise error.under("resources") from None
    # The policy Always makes an init container a sidecar; other containers are not affected.
    policy = _restart_policy(item.get("restartPolicy"))
    restartable = is_init and policy is RestartPolicy.ALWAYS
    return Container(
        ContainerName(name),
        limits,
        requests,
        restartable,
        names_used,
        used,
        image,
        # The rules of init containers are not supported: init containers do not fail here.
        None if is_init else policy,
        () if is_init else read_restart_rules(item.get("restartPolicyRules")),
        _restarts_on_resize(item.get("resizePolicy")),
        is_ephemeral,
    )


def _restarts_on_resize(policies: object) -> tuple[str, ...]:
    """Return the resources whose resize restarts a container. Raises FieldError."""
    if not policies:
        return ()
    if not isinstance(policies, list | tuple):
        raise wrong_type("resizePolicy", "a list", policies)
    for index, policy in enumerate(policies):
        if not isinstance(policy, Mapping):
            raise wrong_type(f"resizePolicy[{index}]", "a mapping", policy)
    return tuple(
        str(each.get("resourceName"))
        for each in policies
        if each.get("restartPolicy") == "RestartContainer"
    )


def _restart_policy(policy: object) -> RestartPolicy | None:
    if policy is None:
        return None
    if policy not in _RESTART_POLICIES:
        raise unsupported("restartPolicy", policy, *_RESTART_POLICIES)
    return RestartPolicy(policy)


def _grace_period(seconds: object) -> int:
    if seconds is None:
        return 30  # the API server's default
    # A Python boolean is an int, but the API server rejects it.
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise wrong_type("terminationGracePeriodSeconds", "a whole number", seconds)
    return max(seconds, 1)  # the API server replaces a negative value by 1, the kubelet 0 by 1


def _image(image: object) -> str:
    """Check and return the image of a container. Raises FieldError.

    The mock does not run the image, but the API server rejects a container without an image.
    """
    if image is None or image == "":
        raise required("image")
    if not isinstance(image, str):
        raise wrong_type("image", "a string", image)
    return image


def _check_name(field: str, value: object, fault_of: Callable[[str], str]) -> None:
    if not isinstance(value, str):
        # YAML reads an unquoted 1e3 or yes as a number or a boolean.
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
    """Return why a name is not a DNS-1123 subdomain; empty if it is valid."""
    if len(name) > _MAX_NAME:
        return f"must be no more than {_MAX_NAME} characters"
    return "" if is_dns1123_subdomain(name) else _SUBDOMAIN_RULE


@lru_cache(maxsize=4096)
def _label_fault(name: str) -> str:
    """Return why a name is not a DNS-1123 label; empty if it is valid."""
    if len(name) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    return "" if _LABEL.match(name) else _LABEL_RULE


@lru_cache(maxsize=4096)
def _uid_fault(uid: str) -> str:
    """Return why a text is not a valid pod UID; empty if it is valid."""
    # The kubelet uses UIDs as directory names.
    if not uid or uid in (".", ".."):
        return "must be a valid directory name"
    if len(uid) > _MAX_NAME:
        return f"must be no more than {_MAX_NAME} characters"
    return (
        "" if uid.isprintable() and "/" not in uid else "must not contain '/' or control characters"
    )
