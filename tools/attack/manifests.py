"""A directory of manifests in which not every file is one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from devicemanager.testing import pod_manifest
from tools.attack.beside import HOSTILE
from tools.attack.messages import device
from tools.attack.model import Limits, Outcome, Target, attack
from tools.attack.plugins import HostilePlugin, register
from tools.attack.running import Running, running
from tools.harness.process import short_directory
from tools.harness.usage import Watch

_RESOURCE: Final = "simulated.example.com/device"
_TIMEOUT: Final = 60.0
_LIMITS: Final = Limits(start=5.0, memory=200.0, threads=200, descriptors=200)


def bomb() -> str:
    """Nine levels of nine references each: 387 million nodes in 600 bytes."""
    levels = ['a0: &a0 ["x","x","x","x","x","x","x","x","x"]']
    for number in range(1, 10):
        references = ",".join([f"*a{number - 1}"] * 9)
        levels.append(f"a{number}: &a{number} [{references}]")
    return "\n".join(levels)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


def _link(to: str, path: Path) -> None:
    path.symlink_to(to)


def _fifo(path: Path) -> None:
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    path.symlink_to(pipe)


_BAD: Iterable[tuple[str, str, Callable[[Path], object]]] = (
    ("fifo", "a manifest is a link to a FIFO", _fifo),
    ("kmsg", "a manifest is a link to /proc/kmsg", partial(_link, "/proc/kmsg")),
    ("zero", "a manifest is a link to /dev/zero", partial(_link, "/dev/zero")),
    ("sparse", "a manifest of 1 GB without data", _sparse),
    ("bomb", "a manifest of references to references", lambda path: path.write_text(bomb())),
    ("nested", "a manifest of 100,000 brackets", lambda path: path.write_text("[" * 100_000)),
)


def _write(path: Path, resource: str) -> None:
    path.write_text(json.dumps(pod_manifest(path.stem, {resource: 1})))


def _beside_bad(make: Callable[[Path], object]) -> Outcome:
    with short_directory() as root:
        manifests = root / "manifests"
        manifests.mkdir()
        make(manifests / "a-bad.yaml")
        _write(manifests / "good.json", _RESOURCE)
        with _command(root, manifests) as command, Watch(command.process.pid) as watch:
            seconds = command.until(partial(_is_admitted, command, "good"), _TIMEOUT)
            problems = [*_admitted(command), *command.end(), *command.noise()]
        return _outcome(watch, seconds, problems)


@attack("manifest-hung", "Allocate of one pod never answers", _LIMITS)
def _beside_hung() -> Outcome:
    """A pod that hangs, then one that does not, then the end of that one."""
    with short_directory() as root:
        target, manifests = Target(root / "k"), root / "manifests"
        manifests.mkdir()
        with _command(target.root, manifests) as command, Watch(command.process.pid) as watch:
            command.until(command.is_ready, _TIMEOUT)
            socket, released = target.plugin_dir / "hostile.sock", threading.Event()
            with HostilePlugin(socket, lambda: iter([device(b"d")]), partial(_hang, released)):
                register(target, socket.name, HOSTILE)
                command.until(lambda: HOSTILE in str(command.records("devices-updated")), _TIMEOUT)
                _write(manifests / "a-hung.json", HOSTILE)
                time.sleep(1)
                begin = time.monotonic()
                _write(manifests / "good.json", _RESOURCE)
                command.until(partial(_is_admitted, command, "good"), 20.0)
                seconds = time.monotonic() - begin
                problems = [*_admitted(command)]
                (manifests / "good.json").unlink()
                if command.until(lambda: bool(command.records("terminated")), 10.0) is None:
                    problems.append("the removal of a manifest had no effect")
                problems += [*command.end(), *command.noise()]
                released.set()
        return _outcome(watch, seconds, problems)


def _hang(released: threading.Event) -> bytes:
    released.wait(_TIMEOUT)
    return b""


def _command(root: Path, manifests: Path) -> AbstractContextManager[Running]:
    return running(root, "-o", "json", "--manifests", manifests, "--simulate", f"{_RESOURCE}=4")


def _is_admitted(command: Running, name: str) -> bool:
    return any(
        record["name"] == f"default/{name}" and record["admitted"]
        for record in command.records("admission")
    )


def _admitted(command: Running) -> list[str]:
    if _is_admitted(command, "good"):
        return []
    return [f"the good pod was not admitted; last words: {''.join(command.errors[-1:]).strip()}"]


def _outcome(watch: Watch, seconds: float | None, problems: Iterable[str]) -> Outcome:
    return Outcome.measured(
        watch.peak,
        start=_TIMEOUT if seconds is None else seconds,
        problems=tuple(problems),
    )


for _name, _about, _make in _BAD:
    attack(f"manifest-{_name}", _about, _LIMITS)(partial(_beside_bad, _make))
