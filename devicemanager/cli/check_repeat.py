"""The command line of ``devicemanager check`` that repeats one check."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from devicemanager.conformance import Check

__all__ = ["repeating_command"]

_SWITCHES = ("driver", "at_node_paths", "private_root", "nri", "reboot", "thorough")
_VALUES = {
    "metrics": None,
    "numa": None,
    "dev": None,
    "sys": None,
    "cdi": None,
    "rootfs": None,
    "previous": None,
    "restart": "never",
    "jobs": 4,
    "profile": "complete",
}
"""Default value of each option; an option with this value is omitted."""


def repeating_command(args: argparse.Namespace, check: Check, version: str | None = None) -> str:
    """Return the command line that repeats only ``check``, with the options in ``args``.

    ``version`` is the kubelet's version in the run to repeat, because ``--kubelet-version all``
    runs each check with several versions.
    """
    words = ["devicemanager", "check", *(["--client"] if args.client else []), "--only", check.id]
    # The checks of clients have no random inputs.
    words += [] if args.client else ["--seed", str(args.seed)]
    words += _repeated(args)
    # If the user selected no version, the default applies again.
    words += ["--kubelet-version", version] if version and args.kubelet_version else []
    for name, default in _VALUES.items():
        value = getattr(args, name)
        words += [] if value == default else [f"--{name}", str(value)]
    words += [f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(args, name)]
    # Quoted, because users paste the line into a shell.
    return shlex.join([*words, "--", *args.command])


def _repeated(args: argparse.Namespace) -> Iterator[str]:
    """Yield the words of those options that the user can give several times."""
    for name in ("hook", "env"):
        for key, value in getattr(args, name):
            yield from (f"--{name}", f"{key}={value}")
    for name in ("resource", "limit"):
        for value in getattr(args, name):
            yield from (f"--{name}", value)
    # In the form of the flag, which has lower-case booleans as in Go.
    for gate, enabled in args.feature_gates:
        yield from ("--feature-gates", f"{gate}={str(enabled).lower()}")
