"""``--control``: the control API of what a command runs, a kubelet or nodes of a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError, rejected_server

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.cluster.cluster import Cluster
    from devicemanager.control.nodes.server import NodesControlServer
    from devicemanager.control.server import ApiServer, ControlServer
    from devicemanager.kubelet.mock import MockKubelet

_SOCKET_ONLY = ""


def add_control(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The flags of every control API; nothing of the server is loaded for them. Returns their
    group."""
    group = parser.add_argument_group("control API")
    group.add_argument(
        "--control",
        nargs="?",
        const=_SOCKET_ONLY,
        metavar="ADDRESS:PORT",
        help="serve the control API on control.sock in the root, for `devicemanager ctl` and "
        "others; and on this address, such as 127.0.0.1:8001, with a token in control.token",
    )
    group.add_argument(
        "--control-allow-remote",
        action="store_true",
        help="let --control be an address that other hosts can reach; nothing is encrypted",
    )
    return group


def add_clock(group: argparse._ArgumentGroup) -> None:
    """A clock that the control API can turn."""
    group.add_argument(
        "--clock",
        choices=("system", "manual"),
        default="system",
        help="manual: the kubelet's time stands still until `devicemanager ctl clock advance` "
        "(default: system)",
    )


def check_control(args: argparse.Namespace) -> None:
    """Raises CommandError for flags that go together only with --control."""
    for name in ("control_allow_remote", "clock"):
        if args.control is None and getattr(args, name, False) not in (False, "system"):
            flag = name.replace("_", "-")
            raise CommandError(f"--{flag} is of use with --control only: give that, too")


def control_server(args: argparse.Namespace, kubelet: MockKubelet) -> ControlServer | None:
    """The server that was asked for, not started. Raises CommandError."""
    if args.control is None:
        return None
    with rejected_server("control"):
        from devicemanager.control.server import ControlServer

        return ControlServer(kubelet, tcp=_tcp(args), allow_remote=args.control_allow_remote)


def nodes_control_server(
    args: argparse.Namespace, cluster: Cluster, directory: Path
) -> NodesControlServer:
    """The server of a cluster's nodes, not started. Raises CommandError."""
    with rejected_server("control"):
        from devicemanager.control.nodes.server import NodesControlServer

        return NodesControlServer(
            cluster, directory, tcp=_tcp(args), allow_remote=args.control_allow_remote
        )


def _tcp(args: argparse.Namespace) -> str | None:
    return None if args.control == _SOCKET_ONLY else str(args.control)


def tell(server: ApiServer, log: KubeletLog) -> None:
    """Say where it serves."""
    path = str(server.socket_path)
    log.say("control-socket", f"control socket: {path}", path=path)
    if server.address is not None:
        address, token = f"http://{server.address}", str(server.token_path)
        text = f"control address: {address}, token in {token}"
        log.say("control-address", text, address=address, token_path=token)
