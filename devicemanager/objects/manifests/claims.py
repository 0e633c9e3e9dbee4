"""Parse resource claims of a Pod: in its spec, in its containers, and for extended resources."""

# Rules follow ``validatePodResourceClaims`` and ``validateResourceClaimNames``
# (pkg/apis/core/validation/validation.go, v1.32).

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from devicemanager.core.ids import ContainerName, ResourceName
from devicemanager.objects.manifests.errors import FieldError, invalid, required, wrong_type

CheckName = Callable[[str, object], None]
"""Function that checks a name. Arguments: field, value. Raises FieldError for an invalid name."""

_ONE, _TEMPLATE = "resourceClaimName", "resourceClaimTemplateName"
_EXTENDED = "extendedResourceClaimStatus"


def read_pod_claims(
    items: object, check_label: CheckName, check_subdomain: CheckName
) -> dict[str, str | None]:
    """Parse ``spec.resourceClaims`` into a mapping: name of the entry → name of the ResourceClaim.

    The value is None for an entry with a template. Raises FieldError with a path below ``spec``.
    """
    found: dict[str, str | None] = {}
    for index, item in enumerate(_items("resourceClaims", items)):
        field = f"resourceClaims[{index}]"
        try:
            name = _name(item, check_label)
            if name in found:
                raise FieldError("name", f'Duplicate value: "{name}"')
            found[name] = _source(item, check_subdomain)
        except FieldError as error:
            raise error.under(field) from None
    return found


def _items(field: str, items: object) -> Collection[Mapping[str, object]]:
    if items is None:
        return ()
    if not isinstance(items, (list, tuple)):
        raise wrong_type(field, "a list", items)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise wrong_type(f"{field}[{index}]", "a mapping", item)
    return items


def _name(item: Mapping[str, object], check_label: CheckName) -> str:
    name = item.get("name")
    if name is None or name == "":
        raise required("name")
    check_label("name", name)
    return str(name)


def _source(item: Mapping[str, object], check_subdomain: CheckName) -> str | None:
    claim, template = item.get(_ONE), item.get(_TEMPLATE)
    if claim is not None and template is not None:
        raise FieldError(
            "", f"Invalid value: at most one of `{_ONE}` or `{_TEMPLATE}` may be given"
        )
    if claim is None and template is None:
        raise FieldError("", f"Invalid value: must specify one of: `{_ONE}`, `{_TEMPLATE}`")
    if claim is None:
        check_subdomain(_TEMPLATE, template)
        return None
    check_subdomain(_ONE, claim)
    return str(claim)


def read_container_claims(resources: object) -> tuple[tuple[str, str], ...]:
    """Return ``resources.claims`` of a container: pairs of claim name and request name.

    The request name is empty if the container uses all requests of the claim. Raises FieldError
    with a path below ``resources``.
    """
    # None if absent; ``read_resources`` has already rejected other types.
    if not isinstance(resources, Mapping):
        return ()
    seen: list[tuple[str, str]] = []
    for index, item in enumerate(_items("claims", resources.get("claims"))):
        name, request = item.get("name"), item.get("request")
        if name is None or name == "":
            raise required(f"claims[{index}].name")
        if not isinstance(name, str):
            raise wrong_type(f"claims[{index}].name", "a string", name)
        if not isinstance(request, str | None):
            raise wrong_type(f"claims[{index}].request", "a string", request)
        if (name, request or "") in seen:
            raise FieldError(f"claims[{index}]", f'Duplicate value: "{name}"')
        seen.append((name, request or ""))
    return tuple(seen)


def check_claims_exist(names: Collection[str], known: Collection[str]) -> None:
    """Raise FieldError if a container uses a claim that the pod does not have.

    ``names`` are the claim names of the container, ``known`` those of the pod. The error has a path
    below ``resources``.
    """
    for index, name in enumerate(names):
        if name not in known:
            text = "must be one of the names in pod.spec.resourceClaims"
            raise invalid(f"claims[{index}].name", name, text)


class ExtendedClaim(NamedTuple):
    """Content of ``status.extendedResourceClaimStatus`` of a pod. The scheduler sets it (v1.34)."""

    name: str | None
    requests: tuple[tuple[ContainerName, ResourceName, str], ...]
    """One tuple for each entry in ``requestMappings``: names of container, resource and request."""


def read_extended_resource_claim(status: object) -> ExtendedClaim:
    """Return the claim that provides a pod's extended resources, from the status of the pod.

    The result has the name None if the status names no claim. Raises FieldError with a path below
    ``status``.
    """
    claim = _mapping(_mapping(status, "").get(_EXTENDED), _EXTENDED)
    name = claim.get("resourceClaimName")
    if not isinstance(name, str | None):
        raise wrong_type(f"{_EXTENDED}.resourceClaimName", "a string", name)
    field = f"{_EXTENDED}.requestMappings"
    mappings = claim.get("requestMappings")
    if not isinstance(mappings, list | tuple | None):
        raise wrong_type(field, "a list", mappings)
    return ExtendedClaim(
        name,
        tuple(
            (
                ContainerName(_string(each, "containerName", f"{field}[{index}]")),
                ResourceName(_string(each, "resourceName", f"{field}[{index}]")),
                # Unpacking is safe: the calls above reject an entry that is not a mapping.
                _string({"requestName": "", **each}, "requestName", f"{field}[{index}]"),
            )
            for index, each in enumerate(mappings or ())
        ),
    )


def read_claim_statuses(status: object) -> dict[str, str | None]:
    """Parse ``status.resourceClaimStatuses``: name of the entry → name of the ResourceClaim.

    The value is None for an entry that needs no claim. Raises FieldError with a path below
    ``status``.
    """
    found: dict[str, str | None] = {}
    items = _mapping(status, "").get("resourceClaimStatuses")
    for index, item in enumerate(_items("resourceClaimStatuses", items)):
        field = f"resourceClaimStatuses[{index}]"
        name = item.get("resourceClaimName")
        if not isinstance(name, str | None):
            raise wrong_type(f"{field}.resourceClaimName", "a string", name)
        found[_string(item, "name", field)] = name
    return found


def _string(mapping: object, name: str, field: str) -> str:
    value = _mapping(mapping, field).get(name)
    if value is None:
        raise required(f"{field}.{name}")
    if not isinstance(value, str):
        raise wrong_type(f"{field}.{name}", "a string", value)
    return value


def _mapping(value: object, field: str) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_type(field, "a mapping", value)
    return value
