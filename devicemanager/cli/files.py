"""Read and check the files that the user names; ``-`` is standard input.

Errors name the file, and suggest another file if the user probably meant that one.
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
    """Return the name of a directory unchanged. Raises ArgumentTypeError if it is empty."""
    return filled(text, "a directory")


def file_name(text: str) -> str:
    """Return the name of a file unchanged. Raises ArgumentTypeError if it is empty."""
    return filled(text, "a file")


def filled(text: str, expected: str) -> str:
    """Return a file or directory name unchanged. Raises ArgumentTypeError if it is empty or has a
    null character. A shell passes an empty text for a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError(f"invalid value '': expected {expected}")
    # Python would raise a ValueError without the name wherever the path is used.
    if "\0" in text:
        raise argparse.ArgumentTypeError(
            f"invalid value {text!r}: expected {expected} without a null character"
        )
    return text


def add_file(
    parser: argparse._ActionsContainer, name: str, help_: str, metavar: str = "FILE", **options: Any
) -> None:
    """Add an argument or an option whose value is a file name."""
    parser.add_argument(name, metavar=metavar, type=file_name, help=help_, **options)


def add_directory(
    parser: argparse._ActionsContainer, name: str, help_: str, **options: Any
) -> None:
    """Add an option whose value is the name of a directory."""
    parser.add_argument(name, metavar="DIR", type=directory, help=help_, **options)


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--socket`` for a PodResources socket."""
    # The same default as in the client, which is slow to import.
    parser.add_argument(
        "--socket",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        metavar="PATH",
        type=file_name,
        help="PodResources socket of the kubelet (default: %(default)s)",
    )


def check_socket(text: str) -> None:
    """Raise CommandError if a path exists and is not a PodResources socket.

    The client reports all other problems, such as a path that does not exist.
    """
    # Users also use the gRPC form of the address, unix:PATH.
    path = Path(text.removeprefix("unix:"))
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise CommandError(f"{text} is a directory{_meant(path, _SOCKETS, stat.S_ISSOCK)}")
    # This is the most frequent mistake, because both sockets are called kubelet.sock.
    other = path.parent.parent / _SOCKETS[1]
    if path.parts[-2:] == _REGISTRATION and stat.S_ISSOCK(_mode(other)):
        raise CommandError(f"{text} is the plugin registration socket; did you mean {other}?")
    if mode and not stat.S_ISSOCK(mode):
        raise CommandError(f"{text} is not a socket: use the kubelet's pod-resources/kubelet.sock")


def check_one_standard_input(files: Iterable[str | None]) -> None:
    """Raise CommandError if more than one file is ``-``. Standard input can be read only once."""
    if sum(file == STANDARD_INPUT for file in files) > 1:
        raise CommandError(
            "standard input (-) is used for more than one file: it can be read only once"
        )


def write_new(text: str, data: bytes) -> None:
    """Create a file that only its owner can read. Raises CommandError if the file exists, and
    OSError if it cannot be written.

    After an error, the incomplete file is removed.
    """
    # O_EXCL fails if another process creates a link with this name first.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(text, flags, 0o600)
    except FileExistsError:
        raise CommandError(exists(text)) from None
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
    # BaseException, because Ctrl-C must not leave an incomplete file either.
    except BaseException as error:
        Path(text).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = text
        raise


def exists(text: str) -> str:
    """Return the error text for a file that the command must create, but that already exists."""
    return f"{text} already exists: use another file name"


def read_standard_input(limit: int) -> bytes:
    """Return the content of standard input. Raises CommandError if it is closed or exceeds
    ``limit`` bytes."""
    if sys.stdin is None:
        raise CommandError("standard input is closed: use a file name instead of -")
    # A program that calls `main` can replace standard input with a text stream.
    binary = getattr(sys.stdin, "buffer", None)
    # Reading one byte more than allowed shows whether there is too much.
    data: bytes = sys.stdin.read().encode() if binary is None else binary.read(limit + 1)
    if len(data) > limit:
        raise CommandError(f"standard input is too large: the limit is {limit} bytes")
    return data


def given_contents(files: Iterable[str], limit: int) -> dict[str, bytes]:
    """Return the content of standard input as ``{"-": content}``, or an empty dict if no file is
    ``-``.

    Raises CommandError.
    """
    # A pipe can be read only once, so it is read here and its content is passed on.
    names = list(files)
    check_one_standard_input(names)
    return {STANDARD_INPUT: read_standard_input(limit)} if STANDARD_INPUT in names else {}


def read_file(text: str, limit: int) -> bytes:
    """Return the content of a file of at most ``limit`` bytes; ``-`` is standard input. Raises
    CommandError and OSError."""
    from devicemanager.io.safe_read import FileRejected, read_regular

    if text == STANDARD_INPUT:
        return read_standard_input(limit)
    try:
        return read_regular(text, limit)
    except FileRejected as error:
        raise CommandError(f"{text} is {error}") from None


def load_checkpoint(text: str) -> Checkpoint:
    """Load a checkpoint file as a kubelet does. Raises CommandError.

    The errors of the package ``checkpoint`` end with advice on starting a kubelet. The error raised
    here omits this advice.
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
    """Return the bytes of a checkpoint file without parsing them. Raises CommandError."""
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
    """Return the mode of a file. Return 0 if the file does not exist or cannot be accessed."""
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
