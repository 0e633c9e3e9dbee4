"""Names of resources and of the namespaces they are in, rejected where they are given."""

from __future__ import annotations

import logging

from devicemanager.core.api.names import extended_resource_fault
from devicemanager.plugin.errors import ConfigurationError

__all__ = ["check_namespace", "check_resource_name"]

_log = logging.getLogger(__name__)


def check_resource_name(resource: object) -> None:
    """Raise ConfigurationError unless a kubelet takes this as an extended resource."""
    if not isinstance(resource, str):
        raise ConfigurationError(f"a resource is a name such as vendor.com/gpu, not {resource!r}")
    if reason := extended_resource_fault(resource):
        raise ConfigurationError(f"resource name {resource!r} is not valid: {reason}")


def check_namespace(namespace: object) -> None:
    """Raise ConfigurationError unless resources can be named ``<namespace>/<last name>``."""
    if not isinstance(namespace, str):
        raise ConfigurationError(f"a namespace is a domain such as vendor.com, not {namespace!r}")
    if reason := extended_resource_fault(f"{namespace}/x"):
        raise ConfigurationError(f"namespace {namespace!r} is not valid: {reason}")
    if "." not in namespace:
        # A kubelet takes it, but most often a resource's last name stands in its place.
        _log.warning("namespace %r is no domain such as vendor.com", namespace)
