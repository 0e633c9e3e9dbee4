"""``devicemanager exec``: let a plugin that has hard-coded kubelet paths use a mock kubelet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_directory
from devicemanager.cli.options import CommandError, command

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_DESCRIPTION = """\
Run a command with the directory of a mock kubelet mounted at /var/lib/kubelet. The mounts are in
private user and mount namespaces: no root is needed, and other processes are not affected. If the
kubelet runs with --nri, its NRI socket is at /var/run/nri/nri.sock. Signals
and the exit status pass through. Descendants of the command are killed when it exits, or when
this program is killed.
"""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager exec`` and its options."""
    parser = command(
        subparsers, "exec", _run, "run a plugin that has hard-coded kubelet paths", _DESCRIPTION
    )
    parser.usage = "%(prog)s --root DIR [--dev DIR] [--sys DIR] [--cdi DIR] -- COMMAND [ARG ...]"
    parser.takes_command = True
    add_directory(parser, "--root", "directory to mount at /var/lib/kubelet", required=True)
    for name, path in (
        ("dev", "/dev; common nodes such as /dev/null stay"),
        ("sys", "/sys"),
        ("cdi", "/etc/cdi and /var/run/cdi"),
    ):
        add_directory(parser, f"--{name}", f"directory to mount at {path}")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="command to run, after --")


def _run(args: argparse.Namespace) -> int:
    from devicemanager.plugin.processes.namespace import Bind, node_binds
    from devicemanager.plugin.processes.supervisor import Supervision, end_as, supervise_guarded

    # All directories are checked before anything is mounted or forked.
    given = {name: _directory(name, getattr(args, name)) for name in ("root", "dev", "sys", "cdi")}
    root = given.pop("root")
    assert root is not None
    binds = node_binds(root, **given)
    if (root / "nri").is_dir():
        binds += (Bind(root / "nri", Path("/var/run/nri")),)
    # `supervise_guarded` forks, so no thread may have been started before.
    end_as(supervise_guarded(Supervision(args.command, binds)))


def _directory(option: str, path: str | None) -> Path | None:
    if path is None:
        return None
    if not Path(path).is_dir():
        raise CommandError(f"--{option}: {path} is not a directory: create it first")
    # Resolved before mounting, because the mounts can hide parts of the path.
    return Path(path).resolve()
