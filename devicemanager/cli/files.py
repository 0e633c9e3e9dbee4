"""Paths that the user names: what is wrong with one, and which may have been meant."""

from __future__ import annotations

import argparse
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from checkpoint import Checkpoint

_SOCKETS = ("kubelet.sock", "pod-resources/kubelet.sock")
_CHECKPOINTS = ("kubelet_internal_checkpoint", "device-plugins/kubelet_internal_checkpoint")


def directory(text: str) -> str:
    """An argument's type: the empty text would stand for the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("a directory is expected, not an empty text")
    return text


def check_socket(text: str) -> None:
    """Raises CommandError for what is there and is no socket; the client tells the rest."""
    path = Path(text.removeprefix("unix:"))
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise CommandError(f"{text} is a directory{_meant(path, _SOCKETS, stat.S_ISSOCK)}")
    if mode and not stat.S_ISSOCK(mode):
        raise CommandError(f"{text} is not a socket: the kubelet's is pod-resources/kubelet.sock")


def load_checkpoint(text: str, verify: bool = True) -> Checkpoint:
    """A checkpoint that is only looked at. Raises CommandError or CheckpointNotFound.

    The errors' own advice is for who wants to start a kubelet.
    """
    import checkpoint

    path = Path(text)
    if stat.S_ISDIR(_mode(path)):
        raise CommandError(f"{text} is a directory{_meant(path, _CHECKPOINTS, stat.S_ISREG)}")
    try:
        if verify:
            return checkpoint.load(text)
        return checkpoint.loads(checkpoint.read(text), source=text, verify=False)
    except checkpoint.ChecksumMismatch as error:
        advice = "`devicemanager checkpoint show --no-verify` shows it all the same"
        raise CommandError(f"{text}: {error.problem}; {advice}") from error
    except checkpoint.CheckpointCorrupt as error:
        raise CommandError(f"{text}: {error.problem}") from error
    except checkpoint.CheckpointUnreadable as error:
        advice = "check its type and permissions"
        raise CommandError(f"{text}: cannot be read: {error.reason}; {advice}") from error


def _mode(path: Path) -> int:
    """What kind of file it is; 0 if there is none, or none to be seen."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _meant(path: Path, names: tuple[str, ...], is_one: Callable[[int], bool]) -> str:
    for name in names:
        if is_one(_mode(path / name)):
            return f"; did you mean {path / name}?"
    return f", and there is no {names[0]} in it"
