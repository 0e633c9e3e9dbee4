"""Applies the objects to a cluster and removes them, through the kubernetes client."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from devicemanager.io.kubeconfig import check_kubeconfig
from devicemanager.plugin.errors import PluginError
from devicemanager.plugin.simulated.objects import (
    DEFAULT_IMAGE,
    MANAGED_BY,
    daemon_set,
    namespace,
)
from devicemanager.plugin.simulated.settings import SimulationSettings

__all__ = ["DeploymentError", "deploy", "undeploy"]

_NOT_FOUND = 404
_CONFLICT = 409
_LIMIT = {"_request_timeout": 30}


@attrs.frozen
class _Apis:
    # Any: the client's own types differ from release to release.
    core: Any
    apps: Any


class DeploymentError(PluginError):
    """The cluster could not be reached, or it rejected. One line that says what to do."""


def deploy(settings: SimulationSettings, image: str = DEFAULT_IMAGE) -> str:
    """Create the namespace, unless it is there, and the DaemonSet. What was done, as text."""
    name = f"{settings.namespace}/{settings.plugin_name}"
    with _cluster(f"deploy {name}") as api:
        # A namespace that is there already is as good.
        _unless(_CONFLICT, lambda: api.core.create_namespace(namespace(settings), **_LIMIT))
        created = _unless(
            _CONFLICT,
            lambda: api.apps.create_namespaced_daemon_set(
                settings.namespace, daemon_set(settings, image), **_LIMIT
            ),
        )
        if not created:
            raise DeploymentError(
                f"DaemonSet {name} is already there: undeploy it first, or choose another "
                "PLUGIN_NAME"
            )
    return f"DaemonSet {name} created"


def undeploy(settings: SimulationSettings) -> str:
    """Remove the DaemonSet, and the namespace if it was made here and serves no other one."""
    name = f"{settings.namespace}/{settings.plugin_name}"
    with _cluster(f"undeploy {name}") as api:
        deleted = _unless(
            _NOT_FOUND,
            lambda: api.apps.delete_namespaced_daemon_set(
                settings.plugin_name, settings.namespace, **_LIMIT
            ),
        )
        if not deleted:
            raise DeploymentError(f"there is no DaemonSet {name}: nothing removed")
        removed = _remove_namespace(settings, api)
    return f"DaemonSet {name} removed" + (", and its namespace" if removed else "")


def _remove_namespace(settings: SimulationSettings, api: _Apis) -> bool:
    labels = api.core.read_namespace(settings.namespace, **_LIMIT).metadata.labels
    if not MANAGED_BY.items() <= (labels or {}).items():
        return False
    others = api.apps.list_namespaced_daemon_set(settings.namespace, **_LIMIT)
    # Foreground deletion may still show the one that was just removed.
    if any(other.metadata.name != settings.plugin_name for other in others.items):
        return False
    api.core.delete_namespace(settings.namespace, **_LIMIT)
    return True


def _unless(status: int, call: Callable[[], object]) -> bool:
    """Make the call. Return False if the answer was this HTTP status."""
    from kubernetes.client import ApiException

    try:
        call()
    except ApiException as error:
        if error.status == status:
            return False
        raise
    return True


@contextlib.contextmanager
def _cluster(purpose: str) -> Iterator[_Apis]:
    """Connect to the cluster of KUBECONFIG; turn its errors into one line."""
    # Importing the client takes a fifth of a second: only where a cluster is wanted.
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError

    configuration = client.Configuration()
    try:
        _load(config, configuration)
    except Exception as error:
        raise DeploymentError(f"cannot {purpose}: {_what_is_wrong(error)}") from error
    configuration.retries = False
    try:
        with client.ApiClient(configuration) as api:
            yield _Apis(client.CoreV1Api(api), client.AppsV1Api(api))
    except client.ApiException as error:
        raise DeploymentError(f"cannot {purpose}: {_rejection(error)}") from error
    except HTTPError as error:
        raise DeploymentError(
            f"cannot {purpose}: no cluster answers at {configuration.host}: {error}"
        ) from error


def _load(config: Any, configuration: object) -> None:
    # The client reads KUBECONFIG when it is imported, which may have been long ago.
    chosen = os.environ.get("KUBECONFIG")
    # A pipe would be waited for.
    for path in filter(os.path.exists, (chosen or "").split(os.pathsep)):
        if not Path(path).is_file():
            raise ValueError(f"{path} is not a file")
        check_kubeconfig(path)
    try:
        config.load_kube_config(config_file=chosen, client_configuration=configuration)
    except config.ConfigException:
        if chosen:
            raise
        config.load_incluster_config(client_configuration=configuration)


def _what_is_wrong(error: Exception) -> str:
    """Why no cluster is known. The client lets out whatever a broken file made it run into."""
    chosen = os.environ.get("KUBECONFIG")
    if not chosen:
        return f"no cluster is configured ({_one_line(error)}); set KUBECONFIG"
    if not any(map(os.path.exists, chosen.split(os.pathsep))):
        return f"KUBECONFIG names {chosen}, which does not exist"
    return f"KUBECONFIG names {chosen}, which is no usable kubeconfig: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _rejection(error: Any) -> str:
    """The API server's own message and the HTTP status."""
    try:
        message = json.loads(error.body)["message"]
    except (ValueError, TypeError, KeyError):
        message = error.reason
    return f"the cluster rejected: {message} ({error.status})"
