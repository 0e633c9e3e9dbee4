"""Files that the user names, ``-`` for standard input: what is wrong with one, and which may
have been meant."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from checkpoint import Checkpoint

STANDARD_INPUT = "-"

_SOCKETS = ("kubelet.sock", "pod-resources/kubelet.sock")
_REGISTRATION = ("device-plugins", "kubelet.sock")
_CHECKPOINTS = ("kubelet_internal_checkpoint", "device-plugins/kubelet_internal_checkpoint")


def directory(text: str) -> str:
    """An argument's type: the empty text would stand for the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("a directory is expected, not an empty text")
    return text


def file_name(text: str) -> str:
    """An argument's type: the empty text is what a shell makes of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("a file is expected, not an empty text")
    return text


def add_socket(parser: argparse.ArgumentParser) -> None:
    """``--socket`` for a PodResources socket."""
    # The client's own default, without loading the client.
    parser.add_argument(
        "--socket",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        metavar="PATH",
        type=file_name,
        help="the PodResources socket (default: %(default)s)",
    )


def check_socket(text: str) -> None:
    """Raises CommandError for a path that exists and is no socket; the client reports the rest."""
    path = Path(text.removeprefix("unix:"))
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise CommandError(f"{text} is a directory{_meant(path, _SOCKETS, stat.S_ISSOCK)}")
    other = path.parent.parent / _SOCKETS[1]
    if path.parts[-2:] == _REGISTRATION and stat.S_ISSOCK(_mode(other)):
        raise CommandError(f"{text} is where plugins register; did you mean {other}?")
    if mode and not stat.S_ISSOCK(mode):
        raise CommandError(f"{text} is not a socket: the kubelet's is pod-resources/kubelet.sock")


def check_one_standard_input(files: Iterable[str | None]) -> None:
    """Raises CommandError if more than one of the files is ``-``: it can be read once."""
    if sum(file == STANDARD_INPUT for file in files) > 1:
        raise CommandError("standard input, -, is given more than once: it can be read once")


def write_new(text: str, data: bytes) -> None:
    """Make a file, which its owner alone may read. Raises CommandError if there is one, and
    OSError; what was written by then is gone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(text, flags, 0o600)
    except FileExistsError:
        raise CommandError(exists(text)) from None
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
    except BaseException as error:
        Path(text).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = text
        raise


def exists(text: str) -> str:
    """Why a new file cannot have this name."""
    return f"{text} exists: name another file"


def read_standard_input(limit: int) -> bytes:
    """All of it. Raises CommandError if it is closed or has more than ``limit`` bytes."""
    if sys.stdin is None:
        raise CommandError("standard input is closed")
    binary = getattr(sys.stdin, "buffer", None)
    data: bytes = sys.stdin.read().encode() if binary is None else binary.read(limit + 1)
    if len(data) > limit:
        raise CommandError(f"standard input has more than {limit} bytes")
    return data


def given_contents(files: Iterable[str], limit: int) -> dict[str, bytes]:
    """What standard input has, by its name ``-``, if that is among the files. Raises
    CommandError."""
    names = list(files)
    check_one_standard_input(names)
    return {STANDARD_INPUT: read_standard_input(limit)} if STANDARD_INPUT in names else {}


def read_file(text: str, limit: int) -> bytes:
    """A file of at most ``limit`` bytes, or standard input. Raises CommandError and OSError."""
    from devicemanager.io.safe_read import FileRejected, read_regular

    if text == STANDARD_INPUT:
        return read_standard_input(limit)
    try:
        return read_regular(text, limit)
    except FileRejected as error:
        raise CommandError(f"{text}: it is {error}") from None


def load_checkpoint(text: str) -> Checkpoint:
    """A checkpoint that a kubelet would load. Raises CommandError.

    The errors' own advice is for who wants to start a kubelet.
    """
    import checkpoint

    try:
        return checkpoint.loads(read_checkpoint(text), source=text)
    except checkpoint.ChecksumMismatch as error:
        advice = "`devicemanager checkpoint show` shows what it holds"
        raise CommandError(f"{text}: {error.problem}; {advice}") from error
    except checkpoint.CheckpointCorrupt as error:
        raise CommandError(f"{text}: {error.problem}") from error


def read_checkpoint(text: str) -> bytes:
    """A checkpoint's contents, whatever they are. Raises CommandError."""
    import checkpoint

    if text == STANDARD_INPUT:
        return read_standard_input(checkpoint.MAX_SIZE)
    path = Path(text)
    if stat.S_ISDIR(_mode(path)):
        raise CommandError(f"{text} is a directory{_meant(path, _CHECKPOINTS, stat.S_ISREG)}")
    try:
        return checkpoint.read(text)
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
    if not os.access(path, os.X_OK):
        return ", and you may not look into it"
    return f", and there is no {names[0]} in it"
