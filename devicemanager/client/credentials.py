"""Address and credentials of the API server, from a kubeconfig or the pod's service account.

The Python package ``kubernetes`` reads them. It also runs exec plugins and renews tokens. This
module uses only attributes of the package's class ``Configuration`` that all releases from 29 on
have.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import (  # type: ignore[attr-defined]
    getproxies,
    proxy_bypass_environment,
)

import attrs

from devicemanager.client.errors import ClusterError
from devicemanager.io.kubeconfig import check_kubeconfig, client_errors

__all__ = ["Credentials", "Server", "kubeconfig_path", "load"]

_LOOPBACK = ("localhost", "::1")
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_PORTS: Final = {"http": 80, "https": 443}
# Well below the 10 s between renewals of a lease, because a server that does not respond must not
# block a thread for longer.
_CONNECT: Final = 5.0
_HINT = "use --kubeconfig, or set KUBECONFIG"

Token = Callable[[], str | None]
"""Function that returns the value of the header Authorization, or None if no header is sent. It
renews an expired token."""


@attrs.frozen
class Server:
    """Address, TLS options and proxy of an API server."""

    url: str
    tls: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of urllib3's ``HTTPSConnection``, as sorted pairs of name and value."""
    proxy: str | None = None

    def connect(self) -> socket.socket:
        """Open a connection, through the proxy if there is one. Raises OSError."""
        from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig
        from urllib3.exceptions import HTTPError
        from urllib3.util import parse_url

        server, peer = urlsplit(self.url), urlsplit(self.proxy or self.url)
        options: dict[str, Any] = {"port": peer.port or _PORTS[peer.scheme], "timeout": _CONNECT}
        if self.proxy:
            options["proxy"] = parse_url(self.proxy)
            options["proxy_config"] = ProxyConfig(None, False, None, None)
        host = str(peer.hostname)
        connection = (
            HTTPSConnection(host, **options, **dict(self.tls))
            if server.scheme == "https"
            else HTTPConnection(host, **options)
        )
        if self.proxy:
            port = server.port or _PORTS[server.scheme]
            connection.set_tunnel(str(server.hostname), port, scheme=peer.scheme)
        try:
            connection.connect()
        except (HTTPError, HTTPException, OSError) as error:
            connection.close()
            raise ConnectionError(str(error)) from error
        return connection.sock

    @property
    def host(self) -> str:
        """Host and port for the header Host."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def prefix(self) -> str:
        """Path that comes before ``/api`` in request URLs, as for a server behind a gateway.

        Without a trailing slash; empty for a URL without a path.
        """
        return urlsplit(self.url).path.rstrip("/")


@attrs.frozen
class Credentials:
    """An API server, with the token to authenticate."""

    server: Server
    token: Token
    reload: Callable[[], Credentials]
    """Function that reads the credentials again and returns them. It is called after a response
    with status 401."""


def load(
    kubeconfig: str | os.PathLike[str] | None = None, context: str | None = None
) -> Credentials:
    """Read a kubeconfig and return the credentials of a context.

    Without a kubeconfig, use the first that exists: the environment variable ``KUBECONFIG``,
    ``~/.kube/config`` or the pod's service account. Raises ClusterError if none of them exists, or
    if the file is invalid.
    """
    if kubeconfig is not None and context is None and (plain := _plain(Path(kubeconfig))):
        return plain
    # Imported here because it takes a fifth of a second.
    from kubernetes.client.configuration import Configuration

    found = Configuration()
    found.refresh_api_key_hook = None
    path = kubeconfig_path(kubeconfig)
    if path is None and _IN_CLUSTER in os.environ:
        where = "the pod's service account"
        _fill(where, lambda: _in_cluster(found))
    else:
        where = f"kubeconfig {path or '~/.kube/config'}"
        _check_file(path)
        _fill(where, lambda: _from_file(found, path, context))
    return Credentials(_server(found, where), _token(found), lambda: load(kubeconfig, context))


def _plain(path: Path) -> Credentials | None:
    """Return the credentials in a kubeconfig of this project's API server; None for any other.

    Such a file is JSON. It has one server without TLS on loopback, and a token or no credentials.
    """
    try:
        config = json.loads(path.read_bytes())
        (cluster,), (user,), (_,) = config["clusters"], config["users"], config["contexts"]
        url, token = cluster["cluster"]["server"], user["user"].get("token")
        if not url.startswith("http://127.0.0.1:") or user["user"].keys() - {"token"}:
            return None
    # All other files are read by the client, with its errors.
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    header = None if token is None else f"Bearer {token}"
    return Credentials(Server(url), lambda: header, lambda: load(path))


def kubeconfig_path(
    given: str | os.PathLike[str] | None = None,
) -> str | os.PathLike[str] | None:
    """Return the path of the kubeconfig that ``load`` reads.

    It is ``given``, or else the value of the environment variable ``KUBECONFIG``, or else
    ``~/.kube/config``. Return None if the first two are not set and the file does not exist.
    """
    return given or os.environ.get("KUBECONFIG") or _default()


def _default() -> str | None:
    # Path.expanduser raises an error for a user ID without a name and without HOME, which occurs
    # in container images.
    usual = os.path.expanduser("~/.kube/config")  # noqa: PTH111
    return usual if Path(usual).exists() else None


def _check_file(path: str | os.PathLike[str] | None) -> None:
    if path is None:
        raise ClusterError(f"no kubeconfig at ~/.kube/config: {_HINT}")
    # KUBECONFIG can name several files.
    if os.pathsep in str(path):  # several files are merged; the client reports what is missing
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
    # Renewed tokens are not written to the file, because the file belongs to the user.
    with client_errors() as errors:
        load(str(path), context=context, client_configuration=found, persist_config=False)
    # If an exec plugin fails, the client only logs it and continues with the user's other
    # credentials. Without others, it is an error.
    if errors and not (found.api_key or found.cert_file or found.username):
        raise ValueError(f"cannot get the user's credentials: {errors[-1]}")


def _in_cluster(found: Any) -> None:
    from kubernetes.config import load_incluster_config

    load: Callable[..., None] = load_incluster_config
    load(client_configuration=found)


def _fill(where: str, fill: Callable[[], None]) -> None:
    try:
        fill()
    except Exception as error:  # the client raises many types for a malformed file
        text = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"{where}: {text}") from None


def _server(found: Any, where: str) -> Server:
    url = str(found.host).rstrip("/")
    if not _is_url(url):
        raise ClusterError(f"{where}: invalid server {url!r}: expected https://HOST:PORT")
    tls = {
        "cert_reqs": ssl.CERT_REQUIRED if found.verify_ssl else ssl.CERT_NONE,
        "ca_certs": found.ssl_ca_cert,
        "cert_file": found.cert_file,
        "key_file": found.key_file,
        "assert_hostname": found.assert_hostname,
        "server_hostname": found.tls_server_name,
    }
    # Options that are None are left to urllib3's defaults, because releases of the client differ
    # in which options are None.
    given = tuple(sorted((name, value) for name, value in tls.items() if value is not None))
    return Server(url, given, _proxy(found, str(urlsplit(url).hostname)))


def _proxy(found: Any, host: str) -> str | None:
    # A proxy cannot reach loopback addresses, and many networks set a proxy for all programs.
    if host in _LOOPBACK or host.startswith("127."):
        return None
    # The oldest releases of the client ignore the environment variables.
    environment = getproxies()
    if proxy_bypass_environment(host, {"no": found.no_proxy or environment.get("no", "")}):
        return None
    proxy = found.proxy or environment.get(urlsplit(str(found.host)).scheme)
    if not proxy:
        return None
    # As in Go, a proxy without a scheme is an HTTP proxy.
    url = str(proxy) if "://" in str(proxy) else f"http://{proxy}"
    if not _is_url(url):
        raise ClusterError(f"invalid proxy {proxy!r}: expected http://HOST:PORT")
    return url


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # ``port`` raises ValueError for a number out of range.
        return parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _token(found: Any) -> Token:
    def token() -> str | None:
        # Reading the key also runs the hook that renews it. The name of the key depends on the
        # release of the client, and the oldest releases have no alias.
        for name in ("BearerToken", "authorization"):
            if text := found.get_api_key_with_prefix(name):
                return str(text)
        return None

    return token
