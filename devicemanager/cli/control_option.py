"""``--control``: the control API of a kubelet that a command runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError, not_installed

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.control.server import ControlServer
    from devicemanager.kubelet.mock import MockKubelet

_SOCKET_ONLY = ""


def add_control(parser: argparse.ArgumentParser) -> None:
    """The flags; nothing of the server is loaded for them."""
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
        if args.control is None and getattr(args, name) not in (False, "system"):
            flag = name.replace("_", "-")
            raise CommandError(f"--{flag} is of use with --control only: give that, too")


def control_server(args: argparse.Namespace, kubelet: MockKubelet) -> ControlServer | None:
    """The server that was asked for, not started. Raises CommandError."""
    if args.control is None:
        return None
    try:
        from devicemanager.control.server import ControlServer
    except ModuleNotFoundError as error:
        raise CommandError(f"--control: {not_installed(error, 'control')}") from None
    from devicemanager.control.access import NotLoopback

    tcp = None if args.control == _SOCKET_ONLY else args.control
    try:
        return ControlServer(kubelet, tcp=tcp, allow_remote=args.control_allow_remote)
    except NotLoopback as error:
        raise CommandError(f"--control: {error}; or give --control-allow-remote, too") from None
    except ValueError as error:
        raise CommandError(f"--control: {error}") from None


def tell(server: ControlServer, log: KubeletLog) -> None:
    """Say where it serves."""
    path = str(server.socket_path)
    log.say("control-socket", f"control socket: {path}", path=path)
    if server.address is not None:
        address, token = f"http://{server.address}", str(server.token_path)
        text = f"control address: {address}, token in {token}"
        log.say("control-address", text, address=address, token_path=token)
