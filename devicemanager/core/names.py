"""Which resource names the kubelet takes for a device plugin's."""

from __future__ import annotations

import re
from functools import lru_cache

_NATIVE_DOMAIN = "kubernetes.io"
_QUOTA_PREFIX = "requests."
_MAX_SUBDOMAIN = 253
_MAX_NAME = 63
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")


@lru_cache(maxsize=1024)
def is_extended_resource_name(name: str) -> bool:
    """Whether ``name`` is an extended resource, as ``vendor.com/gpu``.

    ``IsExtendedResourceName`` of pkg/apis/core/v1/helper (v1.32). The prefix
    ``requests.`` is what a quota for the resource is called, so the name must stay
    a qualified name with it, too.
    """
    if "/" not in name or name.startswith(_QUOTA_PREFIX):
        return False
    # IsNativeResource looks for "kubernetes.io/" anywhere in the name.
    if f"{_NATIVE_DOMAIN}/" in name:
        return False
    return is_qualified_name(_QUOTA_PREFIX + name)


def is_qualified_name(name: str) -> bool:
    """Whether ``name`` is ``[domain/]name`` as ``validation.IsQualifiedName`` has it."""
    domain, slash, local = name.rpartition("/")
    if slash and not is_dns1123_subdomain(domain):
        return False
    return len(local) <= _MAX_NAME and _NAME.match(local) is not None


def is_dns1123_subdomain(name: str) -> bool:
    """Lower case letters, digits, ``-`` and ``.``; at most 253 characters."""
    return len(name) <= _MAX_SUBDOMAIN and _SUBDOMAIN.match(name) is not None
