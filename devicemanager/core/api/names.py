"""Validation of resource names and network interface names."""

from __future__ import annotations

import re
from functools import lru_cache

_NATIVE_DOMAIN = "kubernetes.io"
_QUOTA_PREFIX = "requests."
_MAX_SUBDOMAIN = 253
_MAX_NAME = 63
_MAX_RESOURCE = _MAX_SUBDOMAIN + 1 + _MAX_NAME
_MAX_INTERFACE_BYTES = 15
"""Longest interface name that Linux accepts, in bytes: IFNAMSIZ without the terminating zero."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
# ``\Z``, because ``$`` also matches before a line end at the end of a name.
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")


def is_extended_resource_name(name: str) -> bool:
    """True if ``name`` is a valid extended resource such as ``vendor.com/gpu``."""
    return extended_resource_fault(name) is None


def extended_resource_fault(name: str) -> str | None:
    """Return why ``name`` is not a valid extended resource; None if it is valid.

    Follows ``IsExtendedResourceName`` (pkg/apis/core/v1/helper, v1.32). In a ResourceQuota,
    the name has the prefix ``requests.``. Therefore ``name`` must also be valid with this prefix.
    """
    # Long names are not cached, because any client can send any number of names.
    return _cached_fault(name) if len(name) <= _MAX_RESOURCE else _fault(name)


def _fault(name: str) -> str | None:
    domain, slash, local = name.rpartition("/")
    if not slash:
        return "it has no domain: use a name such as vendor.com/gpu"
    if name.startswith(_QUOTA_PREFIX):
        return f"it starts with {_QUOTA_PREFIX}, which is reserved for quotas"
    # IsNativeResource finds the domain anywhere in the name, not only at its end.
    if f"{_NATIVE_DOMAIN}/" in name:
        return f"domains that end with {_NATIVE_DOMAIN} are reserved for Kubernetes"
    if "/" in domain:
        return "it has more than one '/'"
    if not is_dns1123_subdomain(_QUOTA_PREFIX + domain):
        longest = _MAX_SUBDOMAIN - len(_QUOTA_PREFIX)
        return f"{domain!r} is not a DNS domain in lower case of at most {longest} characters"
    if not is_qualified_name(local):
        return f"{local!r} is not a name of at most {_MAX_NAME} letters, digits, '-', '_' and '.'"
    return None


_cached_fault = lru_cache(maxsize=1024)(_fault)


def is_qualified_name(name: str) -> bool:
    """True if ``name`` is a valid qualified name, ``[domain/]name``
    (``validation.IsQualifiedName``)."""
    domain, slash, local = name.rpartition("/")
    if slash and not is_dns1123_subdomain(domain):
        return False
    return len(local) <= _MAX_NAME and _NAME.match(local) is not None


def is_dns1123_subdomain(name: str) -> bool:
    """True if ``name`` is a valid DNS subdomain in lower case, such as ``vendor.com``, with at most
    253 characters."""
    return len(name) <= _MAX_SUBDOMAIN and _SUBDOMAIN.match(name) is not None


def interface_name_fault(name: str) -> str | None:
    """Return why Linux rejects ``name`` for a network interface; None if it is valid
    (``dev_valid_name``, net/core/dev.c)."""
    invalid = name in ("", ".", "..") or any(c in "/:\0" or c.isspace() for c in name)
    if invalid or len(name.encode(errors="replace")) > _MAX_INTERFACE_BYTES:
        return f"use 1 to {_MAX_INTERFACE_BYTES} bytes without blanks, '/' and ':'"
    return None
