"""Check names of resources and namespaces as soon as an author passes them."""

from __future__ import annotations

import logging

from devicemanager.core.api.names import extended_resource_fault
from devicemanager.plugin.errors import ConfigurationError

__all__ = ["check_namespace", "check_resource_name"]

_log = logging.getLogger(__name__)


def check_resource_name(resource: object) -> None:
    """Raise ConfigurationError unless a kubelet accepts this as an extended resource."""
    if not isinstance(resource, str):
        raise ConfigurationError(
            f"invalid resource {resource!r}: use a name such as vendor.com/gpu"
        )
    if reason := extended_resource_fault(resource):
        raise ConfigurationError(f"invalid resource name {resource!r}: {reason}")


def check_namespace(namespace: object) -> None:
    """Raise ConfigurationError unless resources can be named ``<namespace>/<last name>``."""
    if not isinstance(namespace, str):
        raise ConfigurationError(
            f"invalid namespace {namespace!r}: use a domain such as vendor.com"
        )
    # Any last name will do: this checks the namespace with the rules for a whole name.
    if reason := extended_resource_fault(f"{namespace}/x"):
        raise ConfigurationError(f"invalid namespace {namespace!r}: {reason}")
    if "." not in namespace:
        # A kubelet accepts it, but usually the author passed the last name of a resource.
        _log.warning("namespace %r is not a domain such as vendor.com", namespace)
