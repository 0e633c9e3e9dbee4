"""A pod's resource claims, and which of them its containers use.

Rules follow ``validatePodResourceClaims`` and ``validateResourceClaimNames``
(pkg/apis/core/validation/validation.go, v1.32).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from devicemanager.objects.manifests.errors import FieldError, invalid, required, wrong_type

CheckName = Callable[[str, object], None]
"""Raises FieldError unless the value of a field is such a name."""

_ONE, _TEMPLATE = "resourceClaimName", "resourceClaimTemplateName"


def read_pod_claims(
    items: object, check_label: CheckName, check_subdomain: CheckName
) -> dict[str, str | None]:
    """``spec.resourceClaims``: the name in the pod to the name of the claim, None for a claim
    that is made from a template. Raises FieldError below ``spec``."""
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


def read_container_claims(resources: object) -> tuple[str, ...]:
    """``resources.claims`` of a container: names, each once. Raises FieldError below
    ``resources``."""
    if not isinstance(resources, Mapping):
        return ()
    seen: list[tuple[str, object]] = []
    for index, item in enumerate(_items("claims", resources.get("claims"))):
        name, request = item.get("name"), item.get("request")
        if name is None or name == "":
            raise required(f"claims[{index}].name")
        if not isinstance(name, str):
            raise wrong_type(f"claims[{index}].name", "a string", name)
        if (name, request) in seen:
            raise FieldError(f"claims[{index}]", f'Duplicate value: "{name}"')
        seen.append((name, request))
    return tuple(dict.fromkeys(name for name, _ in seen))


def check_claims_exist(names: Collection[str], known: Collection[str]) -> None:
    """Raises FieldError below ``resources`` for a name that the pod does not define."""
    for index, name in enumerate(names):
        if name not in known:
            text = "must be one of the names in pod.spec.resourceClaims"
            raise invalid(f"claims[{index}].name", name, text)
