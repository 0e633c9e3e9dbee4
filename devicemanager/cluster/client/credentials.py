"""Where the API server is and who we are: from a kubeconfig, or from the pod we run in.

The official client reads it, with its exec plugins and tokens that are renewed. Of what it
fills in only that is used which its releases have had from 29 on.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import (  # type: ignore[attr-defined]
    getproxies,
    proxy_bypass_environment,
)

import attrs

from devicemanager.cluster.client.errors import ClusterError
from devicemanager.io.kubeconfig import check_kubeconfig, client_errors

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

__all__ = ["Credentials", "Server", "load"]

_LOOPBACK = ("localhost", "::1")
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_HINT = "give one with --kubeconfig, or set KUBECONFIG"

Token = Callable[[], str | None]
"""What to send as Authorization, renewed if need be; None is nothing."""


@attrs.frozen
class Server:
    """How to reach the API server."""

    url: str
    tls: tuple[tuple[str, Any], ...] = ()
    """Arguments of urllib3's pool for https, sorted."""
    proxy: str | None = None

    def pool(self, connections: int, *, block: bool = True) -> HTTPConnectionPool:
        """A pool of that many connections; who needs one more waits for it with ``block``."""
        import urllib3

        options: dict[str, Any] = {"maxsize": connections, "block": block}
        if self.url.startswith("https:"):
            options |= dict(self.tls)
        # A pool of its own, not one of the manager's: two lanes must not share connections.
        manager = (
            urllib3.ProxyManager(self.proxy, **options)
            if self.proxy
            else urllib3.PoolManager(**options)
        )
        return manager.connection_from_url(self.url)

    @property
    def prefix(self) -> str:
        """The path before ``/api``, where the server is behind one; without a slash at the end."""
        return urlsplit(self.url).path.rstrip("/")


@attrs.frozen
class Credentials:
    """A server and how we tell it who we are."""

    server: Server
    token: Token
    again: Callable[[], Credentials]
    """Read everything anew: what the server no longer accepts may have been replaced."""


def load(
    kubeconfig: str | os.PathLike[str] | None = None, context: str | None = None
) -> Credentials:
    """Read a kubeconfig; without one, what ``KUBECONFIG`` names, else ``~/.kube/config``,
    else what a pod is given. ``context`` is one of the kubeconfig's.

    Raises ClusterError.
    """
    # Loaded here: it takes a fifth of a second.
    from kubernetes.client.configuration import Configuration

    found = Configuration()
    found.refresh_api_key_hook = None
    path = kubeconfig or os.environ.get("KUBECONFIG") or _default()
    if path is None and _IN_CLUSTER in os.environ:
        where = "the pod's service account"
        _fill(where, lambda: _in_cluster(found))
    else:
        where = str(path or "~/.kube/config")
        _check_file(path)
        _fill(where, lambda: _from_file(found, path, context))
    return Credentials(_server(found, where), _token(found), lambda: load(kubeconfig, context))


def _default() -> str | None:
    # Not Path.expanduser, which raises for a user of no name and no HOME, as an image may have.
    usual = os.path.expanduser("~/.kube/config")  # noqa: PTH111
    return usual if Path(usual).exists() else None


def _check_file(path: str | os.PathLike[str] | None) -> None:
    if path is None:
        raise ClusterError(f"there is no kubeconfig at ~/.kube/config: {_HINT}")
    if os.pathsep in str(path):  # several files are merged; the client says what it lacks
        return
    try:
        check_kubeconfig(path)
    except OSError as error:
        raise ClusterError(f"kubeconfig {path}: {error.strerror}: {_HINT}") from None
    except ValueError as error:
        raise ClusterError(f"kubeconfig {path}: {error}: {_HINT}") from None


def _from_file(found: Any, path: str | os.PathLike[str] | None, context: str | None) -> None:
    from kubernetes.config import load_kube_config

    load: Callable[..., None] = load_kube_config
    with client_errors() as errors:
        load(str(path), context=context, client_configuration=found, persist_config=False)
    # What it has found nevertheless is as good as without the program.
    if errors and not (found.api_key or found.cert_file or found.username):
        raise ValueError(f"its user's credentials cannot be had: {errors[-1]}")


def _in_cluster(found: Any) -> None:
    from kubernetes.config import load_incluster_config

    load: Callable[..., None] = load_incluster_config
    load(client_configuration=found)


def _fill(where: str, fill: Callable[[], None]) -> None:
    try:
        fill()
    except Exception as error:  # of many kinds: a file of somebody else's is read
        text = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"kubeconfig {where}: {text}") from None


def _server(found: Any, where: str) -> Server:
    url = str(found.host).rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ClusterError(f"kubeconfig {where}: server {url!r} is not like https://HOST:PORT")
    tls = {
        "cert_reqs": ssl.CERT_REQUIRED if found.verify_ssl else ssl.CERT_NONE,
        "ca_certs": found.ssl_ca_cert,
        "cert_file": found.cert_file,
        "key_file": found.key_file,
        "assert_hostname": found.assert_hostname,
        "server_hostname": found.tls_server_name,
    }
    given = tuple(sorted((name, value) for name, value in tls.items() if value is not None))
    return Server(url, given, _proxy(found, str(parts.hostname)))


def _proxy(found: Any, host: str) -> str | None:
    if host in _LOOPBACK or host.startswith("127."):
        return None
    # The oldest releases do not look into the environment.
    environment = getproxies()
    if proxy_bypass_environment(host, {"no": found.no_proxy or environment.get("no", "")}):
        return None
    return found.proxy or environment.get(urlsplit(str(found.host)).scheme)


def _token(found: Any) -> Token:
    def token() -> str | None:
        # Also runs the hook that renews it. Releases differ in the name it is kept under, and
        # the oldest know no alias.
        for name in ("BearerToken", "authorization"):
            if text := found.get_api_key_with_prefix(name):
                return str(text)
        return None

    return token
