"""``--http``: the kubelet's HTTP endpoints and the page, of a kubelet that a command runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError, rejected_server

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.control.server import ControlServer
    from devicemanager.kubelet.mock import MockKubelet
    from devicemanager.observe.web.server import HttpServer
    from devicemanager.observe.web.site import Breakable

_DEFAULT = "127.0.0.1:10255"


def add_http(parser: argparse.ArgumentParser) -> None:
    """The flags; nothing of the server is loaded for them."""
    group = parser.add_argument_group("HTTP")
    group.add_argument(
        "--http",
        nargs="?",
        const=_DEFAULT,
        metavar="ADDRESS:PORT",
        help="serve what a kubelet's read-only port serves (/healthz, /pods, /metrics and more) "
        f"and a live page on this address (default: {_DEFAULT}); with --control the control API "
        "as well",
    )
    group.add_argument(
        "--http-allow-remote",
        action="store_true",
        help="let --http be an address that other hosts can reach: they may read everything, and "
        "nothing is encrypted",
    )


def check_http(args: argparse.Namespace) -> None:
    """Raises CommandError for a flag that is of use with --http only."""
    if args.http is None and args.http_allow_remote:
        raise CommandError("--http-allow-remote is of use with --http only: give that, too")


def http_server(
    args: argparse.Namespace,
    kubelet: MockKubelet,
    control: ControlServer | None,
    simulated: Callable[[], Mapping[str, Breakable]],
) -> HttpServer | None:
    """The server that was asked for, not started; it serves ``control``, too. Raises
    CommandError."""
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
        except ControlNotLoopback as error:
            raise CommandError(f"--http: {error}: give --control-allow-remote, too") from None


def tell(server: HttpServer, control: ControlServer | None, log: KubeletLog) -> None:
    """Say where it serves. The token is for eyes, not for files that standard output goes to."""
    url = server.url
    log.say("http-address", f"http address: {url}", address=url)
    shown = f"{url}/"
    if control is not None and sys.stdout.isatty():
        shown += f"#token={control.token_path.read_text().strip()}"
    log.say("page", f"page: {shown}", address=f"{url}/")
