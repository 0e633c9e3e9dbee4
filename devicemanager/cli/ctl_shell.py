"""``devicemanager ctl shell`` and ``ctl oci``: run a command with the variables, mounts and devices
of a container, or write the container's OCI bundle."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.ctl_client import connected, pods_named
from devicemanager.cli.files import add_directory
from devicemanager.cli.options import CommandError, command
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.sandbox import Bundle

_SHELL = ("/bin/sh",)


def add(subparsers: Subparsers) -> None:
    """Add the commands ``devicemanager ctl shell`` and ``devicemanager ctl oci``."""
    shell = command(
        subparsers,
        "shell",
        _run_shell,
        "run a command with a container's variables, mounts and devices",
        "Run a command on this machine with the variables, mounts, device nodes and CDI edits that "
        "a container got, without root. The root file system is that of the host, read-only.",
    )
    shell.usage = "%(prog)s POD [-c CONTAINER] [--rootfs DIR] [--backend NAME] [-- COMMAND ...]"
    shell.takes_command = True
    oci = command(
        subparsers,
        "oci",
        _run_oci,
        "write the OCI bundle of a container",
        "Write config.json, the configuration with which `ctl shell` runs a container.",
    )
    for each in (shell, oci):
        _add_common(each)
    shell.add_argument(
        "--backend",
        choices=("crun", "runc", "namespaces"),
        help="how to create the container (default: crun or runc if installed, else namespaces)",
    )
    oci.add_argument(
        "-o", "--output", metavar="DIR", type=Path, help="new directory (default: print it)"
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    from devicemanager.cli.ctl_action import POD_HELP, add_where

    add_where(parser, argparse.SUPPRESS)
    parser.add_argument("pod", metavar="POD", help=POD_HELP)
    parser.add_argument(
        "-c", "--container", metavar="NAME", help="container (default: the first app container)"
    )
    add_directory(parser, "--rootfs", "root file system of the container", default="/")
    add_directory(parser, "--cdi", "directory with CDI files (default: those of the host)")
    _take_command(parser)


def _take_command(parser: argparse.ArgumentParser) -> None:
    """Parse the words after ``--`` as the command.

    argparse would end the positional arguments at the first option after POD.
    """
    parse = parser.parse_known_args

    def split(args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        at = words.index("--") if "--" in words else len(words)
        found, unknown = parse(words[:at], namespace)
        found.command = words[at + 1 :] or list(_SHELL)
        return found, unknown

    setattr(parser, "parse_known_args", split)  # noqa: B010 - a method of one parser


def _bundle(args: argparse.Namespace) -> Bundle:
    from devicemanager.kubelet.container_runs import bundle_of

    rootfs = Path(args.rootfs).resolve()
    if not os.path.isdir(rootfs):  # noqa: PTH112 - False without permission, too
        raise CommandError(f"--rootfs: {args.rootfs} is not a directory: use another path")
    if not os.access(rootfs, os.R_OK | os.X_OK):
        raise CommandError(
            f"--rootfs: {args.rootfs} is not readable for user {os.getuid()}: use another path"
        )
    with connected(args) as client:
        (pod,) = pods_named(client, [args.pod])
        # The default is that of `kubectl exec` for a pod without annotations.
        name = args.container or pod.containers[0].name
        options = client.container_options(pod.uid, name)
    made = bundle_of(options, args.command, rootfs, args.cdi and Path(args.cdi))
    for note in made.notes:
        print(f"devicemanager: warning: {clean(note)}", file=sys.stderr, flush=True)
    return made


def _run_shell(args: argparse.Namespace) -> int:
    from devicemanager.sandbox import run

    status = run(_bundle(args), args.backend).returncode
    # Death by a signal is reported as a shell does.
    return status if status >= 0 else 128 - status


def _run_oci(args: argparse.Namespace) -> int:
    text = json.dumps(_bundle(args).config, indent=2)
    if args.output is None:
        print(text)
        return 0
    try:
        args.output.mkdir()
    except FileExistsError:
        raise CommandError(f"{args.output} exists: use another directory") from None
    (args.output / "config.json").write_text(f"{text}\n")
    print(clean(f"{args.output}/config.json"))
    return 0
