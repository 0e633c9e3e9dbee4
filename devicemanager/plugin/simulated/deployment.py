"""Create or delete the simulated plugin's objects in a cluster, with the kubernetes client."""

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
    # Any: the client's types differ between releases.
    core: Any
    apps: Any


class DeploymentError(PluginError):
    """Failure to reach a cluster, or a rejected request. The text is one line with the reason."""


def deploy(settings: SimulationSettings, image: str = DEFAULT_IMAGE) -> str:
    """Create the plugin's DaemonSet, and its namespace if that does not exist.

    Return one line that describes the result. Raises DeploymentError if a request fails.
    """
    name = f"{settings.namespace}/{settings.plugin_name}"
    with _cluster(f"deploy {name}") as api:
        # The namespace can exist; `undeploy` removes it only if it has the label of `deploy`.
        _unless(_CONFLICT, lambda: api.core.create_namespace(namespace(settings), **_LIMIT))
        created = _unless(
            _CONFLICT,
            lambda: api.apps.create_namespaced_daemon_set(
                settings.namespace, daemon_set(settings, image), **_LIMIT
            ),
        )
        # Do not replace a DaemonSet: its settings can differ, and its devices can be in use.
        if not created:
            raise DeploymentError(
                f"DaemonSet {name} exists: undeploy it first, or use another PLUGIN_NAME"
            )
    return f"DaemonSet {name} created"


def undeploy(settings: SimulationSettings) -> str:
    """Delete the plugin's DaemonSet. If ``deploy`` created the namespace and it is now unused,
    delete the namespace, too.

    Return one line that describes the result. Raises DeploymentError if a request fails.
    """
    name = f"{settings.namespace}/{settings.plugin_name}"
    with _cluster(f"undeploy {name}") as api:
        deleted = _unless(
            _NOT_FOUND,
            lambda: api.apps.delete_namespaced_daemon_set(
                settings.plugin_name, settings.namespace, **_LIMIT
            ),
        )
        if not deleted:
            raise DeploymentError(f"DaemonSet {name} does not exist: nothing removed")
        removed = _remove_namespace(settings, api)
    return f"DaemonSet {name} removed" + (", and its namespace" if removed else "")


def _remove_namespace(settings: SimulationSettings, api: _Apis) -> bool:
    labels = api.core.read_namespace(settings.namespace, **_LIMIT).metadata.labels
    # Without the label, another tool or user created the namespace.
    if not MANAGED_BY.items() <= (labels or {}).items():
        return False
    others = api.apps.list_namespaced_daemon_set(settings.namespace, **_LIMIT)
    # With foreground deletion, the DaemonSet that was just removed can still be listed.
    if any(other.metadata.name != settings.plugin_name for other in others.items):
        return False
    api.core.delete_namespace(settings.namespace, **_LIMIT)
    return True


def _unless(status: int, call: Callable[[], object]) -> bool:
    """Call the API server. Return False if the call fails with this HTTP status."""
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
    """Connect to the cluster of KUBECONFIG; convert the client's errors to DeploymentError.

    ``purpose`` completes the error text "cannot ...".
    """
    # Imported here: the import takes 0.2 s, and only `deploy` and `undeploy` need it.
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError

    configuration = client.Configuration()
    try:
        _load(config, configuration)
    except Exception as error:
        raise DeploymentError(f"cannot {purpose}: {_configuration_problem(error)}") from error
    # The default retries for minutes when the API server cannot be reached.
    configuration.retries = False
    try:
        with client.ApiClient(configuration) as api:
            yield _Apis(client.CoreV1Api(api), client.AppsV1Api(api))
    except client.ApiException as error:
        raise DeploymentError(f"cannot {purpose}: {_rejection(error)}") from error
    except HTTPError as error:
        raise DeploymentError(
            f"cannot {purpose}: no response from {configuration.host}: {error}"
        ) from error


def _load(config: Any, configuration: object) -> None:
    # The client reads KUBECONFIG when it is imported; the variable can have changed since.
    chosen = os.environ.get("KUBECONFIG")
    # Reject pipes: reading one would block.
    for path in filter(os.path.exists, (chosen or "").split(os.pathsep)):
        if not Path(path).is_file():
            raise ValueError(f"{path} is not a regular file")
        check_kubeconfig(path)
    try:
        config.load_kube_config(config_file=chosen, client_configuration=configuration)
    # Without KUBECONFIG and without ~/.kube/config, the program may run in a pod.
    except config.ConfigException:
        if chosen:
            raise
        config.load_incluster_config(client_configuration=configuration)


def _configuration_problem(error: Exception) -> str:
    """Return why no cluster configuration could be loaded, with the fix.

    ``error`` can have any type, because an invalid file can make the client raise any error.
    """
    chosen = os.environ.get("KUBECONFIG")
    if not chosen:
        return f"no cluster is configured ({_one_line(error)}): set KUBECONFIG"
    if not any(map(os.path.exists, chosen.split(os.pathsep))):
        return f"KUBECONFIG is {chosen}, which does not exist: set it to a kubeconfig file"
    return f"KUBECONFIG is {chosen}, which is not a valid kubeconfig file: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _rejection(error: Any) -> str:
    """Return the text of an API error: the API server's message and the HTTP status."""
    try:
        message = json.loads(error.body)["message"]
    except (ValueError, TypeError, KeyError):
        message = error.reason
    return f"the API server rejected the request: {message} ({error.status})"
