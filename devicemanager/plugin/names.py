"""Check the names of resources and namespaces that an author passes."""

from __future__ import annotations

import logging

from devicemanager.core.api.names import extended_resource_fault
from devicemanager.plugin.errors import ConfigurationError

__all__ = ["check_namespace", "check_resource_name"]

_log = logging.getLogger(__name__)


def check_resource_name(resource: object) -> None:
    """Raise ConfigurationError if ``resource`` is not a valid name of an extended resource."""
    if not isinstance(resource, str):
        raise ConfigurationError(
            f"invalid resource {resource!r}: use a name such as vendor.com/gpu"
        )
    if reason := extended_resource_fault(resource):
        raise ConfigurationError(f"invalid resource name {resource!r}: {reason}")


def check_namespace(namespace: object) -> None:
    """Raise ConfigurationError if kubelets reject all resource names in this namespace."""
    if not isinstance(namespace, str):
        raise ConfigurationError(
            f"invalid namespace {namespace!r}: use a domain such as vendor.com"
        )
    # Check the namespace with the rules for a whole name; the last name `x` is always valid.
    if reason := extended_resource_fault(f"{namespace}/x"):
        raise ConfigurationError(f"invalid namespace {namespace!r}: {reason}")
    if "." not in namespace:
        # A kubelet accepts it, but usually the author passed the last name of a resource.
        _log.warning("namespace %r is not a domain such as vendor.com", namespace)
