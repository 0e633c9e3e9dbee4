"""Attack the start of ``devicemanager run``: links, leftovers, checkpoints, tight limits.

The command must either serve, or exit with exactly one line that names the cause. If it serves, a
good plugin must be able to register, and SIGTERM must stop the command.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

import attrs

import checkpoint
from checkpoint import Checkpoint
from checkpoint.dra import STATE_NAME, State, dumps
from tools.attack.beside import good_registration
from tools.attack.files import link, sparse, stale_socket, text
from tools.attack.model import Limits, Outcome, Target, attack
from tools.attack.running import Running, running
from tools.harness.process import short_directory
from tools.harness.usage import Watch

_TIMEOUT = 90.0
_WHOLE = Limits(memory=200.0, threads=200, descriptors=200)
"""Limits for the memory, threads and descriptors of the whole process, not for growth."""
_LINK, _SHARED, _FILES = "link", "writable|others", "open files|descriptor"

Check = Callable[[Path, Path], Iterable[str]]
"""Function that yields problems while the command serves. Its arguments are the root and a
directory outside of the root."""


@attrs.frozen
class Start:
    """Start of the command: what is prepared, and what the command must do."""

    prepare: Callable[[Path, Path], None] = lambda root, outside: None
    """Function that prepares the root, which exists. Its second argument is a directory outside of
    the root."""
    rejection: str | None = None
    """Pattern that the one-line error must match; None if the command must serve."""
    may_reject: bool = False
    """True if the command may serve or exit. An error must still be one line."""
    check: Check = lambda root, outside: ()
    limits: str = "true"
    root: str = "root"


def _run(start: Start) -> Outcome:
    with short_directory() as place:
        root, outside = place / "root", place / "outside"
        root.mkdir(mode=0o755)
        outside.mkdir(mode=0o755)
        start.prepare(root, outside)
        with running(place / start.root, "-o", "json", limits=start.limits) as command:
            with Watch(command.process.pid) as watch:
                seconds = command.until(command.is_ready, _TIMEOUT)
                problems = list(_judged(start, command, seconds))
                problems += start.check(root, outside)
                registration = None
                if command.process.poll() is None and seconds is not None:
                    registration, more = good_registration(place / start.root, _TIMEOUT)
                    problems += [*more, *command.end(), *command.noise()]
            return Outcome.measured(
                watch.peak,
                registration=registration,
                stop=command.stop,
                start=seconds if seconds is not None else _TIMEOUT,
                problems=tuple(problems),
            )


def _judged(start: Start, command: Running, seconds: float | None) -> Iterator[str]:
    if seconds is None:
        yield "the command neither served nor exited"
    elif command.is_ready():
        if start.rejection is not None and not start.may_reject:
            yield "the command served, expected an exit with an error"
    elif start.rejection is None and not start.may_reject:
        yield f"the command did not serve: {_last(command)}"
    elif len(command.errors) != 1:
        yield f"the command printed {len(command.errors)} error lines, expected 1: {_last(command)}"
    elif "unexpected" in command.errors[0]:
        yield f"the command failed with a bug: {_last(command)}"
    elif re.search(start.rejection or "", command.errors[0], re.IGNORECASE) is None:
        yield f"the error does not name the cause: {_last(command)}"


def _last(command: Running) -> str:
    return (command.errors or ["no message"])[-1].strip()[:300] + f" ({command.process.poll()})"


# -- links and foreign directories -----------------------------------------------------


def _canaries(directory: Path) -> None:
    # Create files that the kubelet would delete if its cleanup followed the link.
    (directory / "key.pem").write_text("precious")
    stale_socket(directory / "other.sock")


def _unharmed(_: Path, outside: Path) -> Iterator[str]:
    for name in ("key.pem", "other.sock"):
        if not (outside / name).exists():
            yield f"{name} in the directory behind the link was deleted"


def _linked(name: str, root: Path, outside: Path) -> None:
    _canaries(outside)
    (root / name).symlink_to(outside)


def _link(name: str) -> Start:
    return Start(partial(_linked, name), _LINK, check=_unharmed)


def _linked_root(root: Path, outside: Path) -> None:
    _canaries(outside)
    (outside / "device-plugins").mkdir()
    (root.parent / "linked").symlink_to(outside)


def _shared(root: Path, _: Path) -> None:
    (root / "device-plugins").mkdir()
    (root / "device-plugins").chmod(0o777)


def _loop(root: Path, _: Path) -> None:
    plugins = root / "device-plugins"
    plugins.mkdir(0o750)
    (plugins / "z").symlink_to("z")
    (plugins / "key.pem").write_text("precious")


def _not_deleted(root: Path, _: Path) -> Iterator[str]:
    if not (root / "device-plugins" / "key.pem").exists():
        yield "a file that is not a socket was deleted"


# -- sockets ---------------------------------------------------------------------------


def _leftovers(root: Path, _: Path) -> None:
    served = root / "pod-resources"
    served.mkdir(0o750)
    for number in range(20):
        stale_socket(served / f".{number:011x}")


def _cleared(root: Path, _: Path) -> Iterator[str]:
    left = sum(1 for path in (root / "pod-resources").iterdir() if path.name != "kubelet.sock")
    if left:
        yield f"{left} private sockets of killed kubelets were not removed"


def _closed(root: Path, _: Path) -> Iterator[str]:
    for path in (Target(root).registration, Target(root).pod_resources):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o7:
            yield f"{path.relative_to(root)} has mode {mode:o}: any user can connect"


# -- checkpoints -----------------------------------------------------------------------


def _checkpoint(make: Callable[[Path], object], root: Path, _: Path) -> None:
    path = Target(root).checkpoint
    path.parent.mkdir(0o750)
    make(path)


def _repeated(path: Path) -> None:
    keys = ",".join(f'"k{number}":0' for number in range(40_000))
    path.write_text(f'{{"Data":{{{keys},"k39999":0}},"Checksum":0}}')


def _of(make: Callable[[Path], object]) -> Start:
    return Start(partial(_checkpoint, make), "checkpoint", may_reject=True)


def _dra_state(make: Callable[[Path], object], root: Path, outside: Path) -> None:
    _checkpoint(partial(text, _EMPTY), root, outside)
    make(root / STATE_NAME)


def _dra_health(make: Callable[[Path], object], root: Path, outside: Path) -> None:
    _checkpoint(partial(text, _EMPTY), root, outside)
    # The file is read only on a node that has used DRA.
    (root / STATE_NAME).write_bytes(dumps(State()))
    make(root / "dra_health_state")


def _text(content: str) -> Start:
    return _of(partial(text, content))


def _few(limits: str, cause: str) -> Start:
    # How much a start needs depends on the versions of Python and the libraries.
    return Start(rejection=cause, may_reject=True, limits=limits)


_DIGITS = '{"Data":{},"Checksum":' + "9" * 5_000_000 + "}"
_EMPTY = checkpoint.dumps(Checkpoint((), {})).decode()
_INNER = json.dumps({"Data": "[" * 1_000_000, "Checksum": crc32(b"[" * 1_000_000)})
_STARTS: Iterable[tuple[str, str, Start]] = (
    ("link-device-plugins", "device-plugins is a link", _link("device-plugins")),
    ("link-pod-resources", "pod-resources is a link", _link("pod-resources")),
    ("link-plugins-registry", "plugins_registry is a link", _link("plugins_registry")),
    ("link-root", "the root is a link", Start(_linked_root, _LINK, check=_unharmed, root="linked")),
    ("shared-directory", "device-plugins is writable by all users", Start(_shared, _SHARED)),
    ("link-itself", "a link to itself, and a file", Start(_loop, check=_not_deleted)),
    ("leftover-sockets", "private sockets of killed kubelets", Start(_leftovers, check=_cleared)),
    ("umask-0", "the umask is 0", Start(check=_closed, limits="umask 0")),
    ("checkpoint-sparse", "a sparse checkpoint of 1 GB", _of(sparse)),
    ("checkpoint-repeated-keys", "40,000 keys, the last one twice", _of(_repeated)),
    ("checkpoint-nested", "a checkpoint of a million brackets", _text("[" * 1_000_000)),
    ("checkpoint-digits", "a checksum of 5 million digits", _text(_DIGITS)),
    ("checkpoint-fifo", "the checkpoint is a FIFO", _of(os.mkfifo)),
    ("checkpoint-zero", "the checkpoint is a link to /dev/zero", _of(partial(link, "/dev/zero"))),
    ("descriptors-8", "ulimit -n 8", _few("ulimit -n 8", _FILES)),
    ("descriptors-12", "ulimit -n 12", _few("ulimit -n 12", _FILES)),
    ("descriptors-16", "ulimit -n 16", _few("ulimit -n 16", _FILES)),
    ("descriptors-24", "ulimit -n 24", _few("ulimit -n 24", _FILES)),
    ("descriptors-40", "ulimit -n 40", Start(limits="ulimit -n 40")),
    ("memory-200", "ulimit -v 200000", _few("ulimit -v 200000", "memory")),
    ("memory-140", "ulimit -v 140000", _few("ulimit -v 140000", "memory")),
)  # fmt: skip

_DRA: Iterable[tuple[str, str, Callable[[Path], object]]] = (
    ("fifo", "is a FIFO", os.mkfifo),
    ("zero", "is a link to /dev/zero", partial(link, "/dev/zero")),
    ("sparse", "is sparse and has 1 GB", sparse),
    ("nested", "has a million brackets", partial(text, "[" * 1_000_000)),
    ("digits", "has a number of 5 million digits", partial(text, _DIGITS)),
    ("inner", "has a million brackets inside", partial(text, _INNER)),
)


def _state_starts() -> Iterator[tuple[str, str, Start]]:
    for name, about, make in _DRA:
        # Deep nesting is in the corpus of the fuzz target ``dra-state``.
        if "brackets" not in about:
            state = Start(partial(_dra_state, make), may_reject=True)
            yield f"dra-state-{name}", f"dra_manager_state {about}", state
        health = Start(partial(_dra_health, make))
        yield f"dra-health-file-{name}", f"dra_health_state {about}", health


for _name, _about, _start in (*_STARTS, *_state_starts()):
    attack(_name, _about, _WHOLE)(partial(_run, _start))
