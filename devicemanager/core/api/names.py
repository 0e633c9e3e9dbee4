"""Which resource names a kubelet takes for a device plugin's."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "extended_resource_fault",
    "interface_name_fault",
    "is_dns1123_subdomain",
    "is_extended_resource_name",
    "is_qualified_name",
]

_NATIVE_DOMAIN = "kubernetes.io"
_QUOTA_PREFIX = "requests."
_MAX_SUBDOMAIN = 253
_MAX_NAME = 63
_MAX_RESOURCE = _MAX_SUBDOMAIN + 1 + _MAX_NAME
_MAX_INTERFACE_BYTES = 15
"""IFNAMSIZ less its closing zero: the longest name Linux has for an interface."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")


def is_extended_resource_name(name: str) -> bool:
    """Whether ``name`` is an extended resource, as ``vendor.com/gpu``."""
    return extended_resource_fault(name) is None


def extended_resource_fault(name: str) -> str | None:
    """What keeps ``name`` from being an extended resource; None if nothing does.

    ``IsExtendedResourceName`` of pkg/apis/core/v1/helper (v1.32). The prefix
    ``requests.`` is what a quota for the resource is called, so the name must stay
    a qualified name with it, too.
    """
    # Names come from anybody: long ones must not stay in memory.
    return _known_fault(name) if len(name) <= _MAX_RESOURCE else _fault(name)


def _fault(name: str) -> str | None:
    domain, slash, local = name.rpartition("/")
    if not slash:
        return "it has no domain, as in vendor.com/gpu"
    if name.startswith(_QUOTA_PREFIX):
        return f"it starts with {_QUOTA_PREFIX}"
    # IsNativeResource looks for "kubernetes.io/" anywhere in the name.
    if f"{_NATIVE_DOMAIN}/" in name:
        return f"domains that end with {_NATIVE_DOMAIN} are Kubernetes' own"
    if "/" in domain:
        return "it has more than one '/'"
    if not is_dns1123_subdomain(_QUOTA_PREFIX + domain):
        longest = _MAX_SUBDOMAIN - len(_QUOTA_PREFIX)
        return f"{domain!r} is not a DNS domain in lower case of at most {longest} characters"
    if not is_qualified_name(local):
        return f"{local!r} is not a name of at most {_MAX_NAME} letters, digits, '-', '_' and '.'"
    return None


_known_fault = lru_cache(maxsize=1024)(_fault)


def is_qualified_name(name: str) -> bool:
    """Whether ``name`` is ``[domain/]name`` as ``validation.IsQualifiedName`` has it."""
    domain, slash, local = name.rpartition("/")
    if slash and not is_dns1123_subdomain(domain):
        return False
    return len(local) <= _MAX_NAME and _NAME.match(local) is not None


def is_dns1123_subdomain(name: str) -> bool:
    """Lower case letters, digits, ``-`` and ``.``; at most 253 characters."""
    return len(name) <= _MAX_SUBDOMAIN and _SUBDOMAIN.match(name) is not None


def interface_name_fault(name: str) -> str | None:
    """What keeps Linux from giving this name to a network interface
    (``dev_valid_name``, net/core/dev.c); None if nothing does."""
    odd = name in ("", ".", "..") or any(c in "/:\0" or c.isspace() for c in name)
    if odd or len(name.encode(errors="replace")) > _MAX_INTERFACE_BYTES:
        return f"a name has 1 to {_MAX_INTERFACE_BYTES} bytes without blanks, '/' and ':'"
    return None
