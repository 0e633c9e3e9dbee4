"""The flags ``--control`` and ``--http``, and the servers that a command runs for them.

The servers are imported only when a flag requests them, because each server needs an extra.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError, rejected_server

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.control.nodes.server import NodesControlServer
    from devicemanager.control.server import ApiServer, ControlServer
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.observe.web.server import HttpServer
    from devicemanager.observe.web.site import Breakable

# The value of --control if no address is given.
_SOCKET_ONLY = ""
# The address of a kubelet's read-only port.
HTTP_DEFAULT = "127.0.0.1:10255"


def add_control(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the flags of the control API, and return their argument group."""
    group = parser.add_argument_group("control API")
    group.add_argument(
        "--control",
        nargs="?",
        const=_SOCKET_ONLY,
        metavar="ADDRESS:PORT",
        help="serve the control API for `devicemanager ctl` on control.sock in the root; with an "
        "address, such as 127.0.0.1:8001, also there, with the token in control.token",
    )
    group.add_argument(
        "--control-allow-remote",
        action="store_true",
        help="allow an address for --control that other hosts can reach; traffic is not encrypted",
    )
    return group


def add_clock(group: argparse._ArgumentGroup) -> None:
    """Add the flag ``--clock``. With ``--clock manual``, only the control API advances the time."""
    group.add_argument(
        "--clock",
        choices=("system", "manual"),
        default="system",
        help="manual: time advances only with `devicemanager ctl clock advance` (default: system)",
    )


def add_http(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the kubelet's HTTP server."""
    group = parser.add_argument_group("HTTP")
    group.add_argument(
        "--http",
        nargs="?",
        const=HTTP_DEFAULT,
        metavar="ADDRESS:PORT",
        help="serve the kubelet's read-only endpoints (/healthz, /pods, /metrics and more) and a "
        f"live page (default address: {HTTP_DEFAULT}); with --control, also the control API",
    )
    group.add_argument(
        "--http-allow-remote",
        action="store_true",
        help="allow an address for --http that other hosts can reach: they can read everything, "
        "and traffic is not encrypted",
    )


def check_control(args: argparse.Namespace) -> None:
    """Raise CommandError for flags that require --control, if --control is missing."""
    for name in ("control_allow_remote", "clock"):
        # ``join`` has no --clock.
        if args.control is None and getattr(args, name, False) not in (False, "system"):
            # Ignoring the flag would hide a mistake, because the user expects a server.
            raise CommandError(f"--{name.replace('_', '-')} requires --control")


def check_http(args: argparse.Namespace) -> None:
    """Raise CommandError for flags that require --http, if --http is missing."""
    if args.http is None and args.http_allow_remote:
        raise CommandError("--http-allow-remote requires --http")


def control_server(args: argparse.Namespace, kubelet: MockKubelet) -> ControlServer | None:
    """Create the server for --control without starting it; return None if the flag is missing.
    Raises CommandError."""
    if args.control is None:
        return None
    with rejected_server("control"):
        from devicemanager.control.server import ControlServer

        return ControlServer(kubelet, tcp=_tcp(args), allow_remote=args.control_allow_remote)


def nodes_control_server(
    args: argparse.Namespace, cluster: Cluster, directory: Path
) -> NodesControlServer:
    """Create the control API's server for a cluster's nodes, without starting it. Raises
    CommandError."""
    with rejected_server("control"):
        from devicemanager.control.nodes.server import NodesControlServer

        return NodesControlServer(
            cluster, directory, tcp=_tcp(args), allow_remote=args.control_allow_remote
        )


def http_server(
    args: argparse.Namespace,
    kubelet: MockKubelet,
    control: ControlServer | None,
    simulated: Callable[[], Mapping[str, Breakable]],
) -> HttpServer | None:
    """Create the server for --http without starting it; return None if the flag is missing.

    If ``control`` is not None, the server also serves the control API. Raises CommandError.
    """
    if args.http is None:
        return None
    with rejected_server("http"):
        from devicemanager.observe.web.server import ControlNotLoopback, HttpServer

        try:
            return HttpServer(
                kubelet,
                args.http,
                control=control,
                allow_remote=args.http_allow_remote,
                simulated=simulated,
            )
        # The HTTP server also serves the control API, so --http-allow-remote alone is not enough.
        except ControlNotLoopback as error:
            raise CommandError(
                f"--http: {error}: to allow this, add --control-allow-remote"
            ) from None


def _tcp(args: argparse.Namespace) -> str | None:
    return None if args.control == _SOCKET_ONLY else str(args.control)


def report_control(server: ApiServer, log: KubeletLog) -> None:
    """Print the socket and the address of the control API."""
    path = str(server.socket_path)
    log.say("control-socket", f"control socket: {path}", path=path)
    if server.address is not None:
        address, token = f"http://{server.address}", str(server.token_path)
        text = f"control address: {address}, token in {token}"
        log.say("control-address", text, address=address, token_path=token)


def report_http(server: HttpServer, control: ControlServer | None, log: KubeletLog) -> None:
    """Print the addresses of the HTTP server and of its live page."""
    url = server.url
    log.say("http-address", f"http address: {url}", address=url)
    shown = f"{url}/"
    # Printed only on a terminal, because a log file must not contain the token.
    if control is not None and sys.stdout.isatty():
        shown += f"#token={control.token_path.read_text().strip()}"
    log.say("page", f"page: {shown}", address=f"{url}/")
