"""Read and check files that the user names; ``-`` is standard input.

Errors name the file, and suggest another if the user probably meant that one.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from checkpoint import Checkpoint

STANDARD_INPUT = "-"

_SOCKETS = ("kubelet.sock", "pod-resources/kubelet.sock")
_REGISTRATION = ("device-plugins", "kubelet.sock")
_CHECKPOINTS = ("kubelet_internal_checkpoint", "device-plugins/kubelet_internal_checkpoint")


def directory(text: str) -> str:
    """Parse the name of a directory; an empty text would mean the current directory."""
    return filled(text, "a directory")


def file_name(text: str) -> str:
    """Parse the name of a file."""
    return filled(text, "a file")


def filled(text: str, expected: str) -> str:
    """Reject an empty text, which is what a shell passes for a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError(f"expected {expected}, not an empty text")
    # Python reports it as a ValueError without the name, wherever the path is used.
    if "\0" in text:
        raise argparse.ArgumentTypeError(f"expected {expected}, not a text with a null character")
    return text


def add_file(
    parser: argparse._ActionsContainer, name: str, help_: str, metavar: str = "FILE", **options: Any
) -> None:
    """Add an argument or an option with a file name."""
    parser.add_argument(name, metavar=metavar, type=file_name, help=help_, **options)


def add_directory(
    parser: argparse._ActionsContainer, name: str, help_: str, **options: Any
) -> None:
    """Add an option with a directory."""
    parser.add_argument(name, metavar="DIR", type=directory, help=help_, **options)


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add ``--socket`` for a PodResources socket."""
    # The default of the client, repeated here because loading the client is slow.
    parser.add_argument(
        "--socket",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        metavar="PATH",
        type=file_name,
        help="PodResources socket of the kubelet (default: %(default)s)",
    )


def check_socket(text: str) -> None:
    """Raise CommandError for a path that exists and is not a PodResources socket.

    The client reports everything else, such as a path that does not exist.
    """
    # Users also copy the gRPC form of the address, unix:PATH.
    path = Path(text.removeprefix("unix:"))
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise CommandError(f"{text} is a directory{_meant(path, _SOCKETS, stat.S_ISSOCK)}")
    # The most frequent mistake: both sockets are called kubelet.sock.
    other = path.parent.parent / _SOCKETS[1]
    if path.parts[-2:] == _REGISTRATION and stat.S_ISSOCK(_mode(other)):
        raise CommandError(f"{text} is the plugin registration socket; did you mean {other}?")
    if mode and not stat.S_ISSOCK(mode):
        raise CommandError(f"{text} is not a socket: use the kubelet's pod-resources/kubelet.sock")


def check_one_standard_input(files: Iterable[str | None]) -> None:
    """Raise CommandError if more than one file is ``-``: it can be read only once."""
    if sum(file == STANDARD_INPUT for file in files) > 1:
        raise CommandError("- (standard input) is given more than once: it can be read only once")


def write_new(text: str, data: bytes) -> None:
    """Create a file that only its owner can read. Raises CommandError if it exists, and OSError.

    After an error, the incomplete file is removed.
    """
    # O_EXCL: no other process can place a link between a check and the creation.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(text, flags, 0o600)
    except FileExistsError:
        raise CommandError(exists(text)) from None
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
    # BaseException, because Ctrl-C must not leave half a file, either.
    except BaseException as error:
        Path(text).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = text
        raise


def exists(text: str) -> str:
    """Return the error text for a new file that exists."""
    return f"{text} exists: use another file name"


def read_standard_input(limit: int) -> bytes:
    """Read standard input. Raises CommandError if it is closed or exceeds ``limit`` bytes."""
    if sys.stdin is None:
        raise CommandError("standard input is closed")
    # A program that calls `main` can replace standard input by a text stream.
    binary = getattr(sys.stdin, "buffer", None)
    # One byte more than allowed is enough to know that there is too much.
    data: bytes = sys.stdin.read().encode() if binary is None else binary.read(limit + 1)
    if len(data) > limit:
        raise CommandError(f"standard input has more than {limit} bytes")
    return data


def given_contents(files: Iterable[str], limit: int) -> dict[str, bytes]:
    """Return the contents of standard input by its name ``-``; empty if no file is ``-``.

    Raises CommandError.
    """
    # Read before the files are: a pipe can be read only once, and may be named in a list.
    names = list(files)
    check_one_standard_input(names)
    return {STANDARD_INPUT: read_standard_input(limit)} if STANDARD_INPUT in names else {}


def read_file(text: str, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes. Raises CommandError and OSError."""
    from devicemanager.io.safe_read import FileRejected, read_regular

    if text == STANDARD_INPUT:
        return read_standard_input(limit)
    try:
        return read_regular(text, limit)
    except FileRejected as error:
        raise CommandError(f"{text} is {error}") from None


def load_checkpoint(text: str) -> Checkpoint:
    """Load a checkpoint as a kubelet does. Raises CommandError.

    The advice in the errors of ``checkpoint`` is about starting a kubelet, so it is left out.
    """
    import checkpoint

    try:
        return checkpoint.loads(read_checkpoint(text), source=text)
    except checkpoint.ChecksumMismatch as error:
        advice = "use `devicemanager checkpoint show` to see its content"
        raise CommandError(f"{text}: {error.problem}; {advice}") from error
    except checkpoint.CheckpointCorrupt as error:
        raise CommandError(f"{text}: {error.problem}") from error


def read_checkpoint(text: str) -> bytes:
    """Read a checkpoint file as bytes; do not parse it. Raises CommandError."""
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
    """Return the mode of a file; 0 if it does not exist or cannot be seen."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _meant(path: Path, names: tuple[str, ...], is_one: Callable[[int], bool]) -> str:
    for name in names:
        if is_one(_mode(path / name)):
            return f"; did you mean {path / name}?"
    if not os.access(path, os.X_OK):
        return ", and you are not allowed to read it"
    return f", and it does not contain {names[0]}"
