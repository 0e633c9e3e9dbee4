"""Attack with bad files in the same directory as good ones: pod manifests and CDI specifications.

A bad file can block its reader (a FIFO), be endless (/dev/zero), have a huge size without data, or
grow while it is parsed (references to references). The reader must report the bad file in one line,
and must still read the good file. ``Outcome.start`` is the time until both are done.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from devicemanager.testing import pod_manifest
from tools.attack.model import Limits, Outcome, Target, attack
from tools.attack.plugins import HOSTILE, device, hostile_plugin
from tools.attack.running import Running, running
from tools.harness.process import short_directory
from tools.harness.usage import Watch

Make = Callable[[Path], object]
_RESOURCE: Final = "simulated.example.com/device"
_TIMEOUT: Final = 60.0
_MANIFEST_LIMITS: Final = Limits(memory=200.0, threads=200, descriptors=200)
_CDI_LIMITS: Final = Limits(start=5.0, memory=150.0)


def bomb() -> str:
    """Return a YAML text with nine levels of nine references each: 387 million nodes in 600
    bytes."""
    levels = ['a0: &a0 ["x","x","x","x","x","x","x","x","x"]']
    for number in range(1, 10):
        references = ",".join([f"*a{number - 1}"] * 9)
        levels.append(f"a{number}: &a{number} [{references}]")
    return "\n".join(levels)


def sparse(path: Path, size: int = 1 << 30) -> None:
    """Create a sparse file: ``size`` bytes without data on disk."""
    path.touch(0o600)
    os.truncate(path, size)


def link(to: str, path: Path) -> None:
    """Create a symbolic link at ``path`` that leads to ``to``."""
    path.symlink_to(to)


def text(content: str, path: Path) -> None:
    """Create a file with the text ``content``."""
    path.write_text(content)


def stale_socket(path: Path) -> None:
    """Create a socket file on which no process listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        bound.bind(str(path))


# -- manifests ---------------------------------------------------------------------------


def _linked_fifo(path: Path) -> None:
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    path.symlink_to(pipe)


_MANIFESTS: Iterable[tuple[str, str, Make]] = (
    ("fifo", "a manifest is a link to a FIFO", _linked_fifo),
    ("kmsg", "a manifest is a link to /proc/kmsg", partial(link, "/proc/kmsg")),
    ("zero", "a manifest is a link to /dev/zero", partial(link, "/dev/zero")),
    ("sparse", "a sparse manifest of 1 GB", sparse),
    ("bomb", "a manifest of references to references", partial(text, bomb())),
    ("nested", "a manifest of 100,000 brackets", partial(text, "[" * 100_000)),
)


def _manifest_beside(make: Make) -> Outcome:
    with short_directory() as root:
        manifests = root / "manifests"
        manifests.mkdir()
        # Files are read in the order of their names, so the bad file comes first.
        make(manifests / "a-bad.yaml")
        _write(manifests / "good.json", _RESOURCE)
        with _command(root, manifests) as command, Watch(command.process.pid) as watch:
            seconds = command.until(partial(_is_good_admitted, command), _TIMEOUT)
            problems = [*_admission_problems(command), *command.end(), *command.noise()]
        start = _TIMEOUT if seconds is None else seconds
        return Outcome.measured(
            watch.peak, start=start, stop=command.stop, problems=tuple(problems)
        )


@attack("manifest-hung", "Allocate of one pod never returns", _MANIFEST_LIMITS)
def _beside_hung() -> Outcome:
    with short_directory() as root:
        target, manifests = Target(root / "k"), root / "manifests"
        manifests.mkdir()
        with _command(target.root, manifests) as command, Watch(command.process.pid) as watch:
            command.until(command.is_ready, _TIMEOUT)
            released = threading.Event()
            lists, hang = (lambda: iter([device(b"d")])), partial(_hang, released)
            with hostile_plugin(target, lists, allocate=hang):
                command.until(lambda: HOSTILE in str(command.records("devices-updated")), _TIMEOUT)
                _write(manifests / "a-hung.json", HOSTILE)
                time.sleep(1)
                # Now the admission of the pod hangs. Another pod must be admitted, and terminated
                # when its manifest is removed.
                begin = time.monotonic()
                _write(manifests / "good.json", _RESOURCE)
                command.until(partial(_is_good_admitted, command), _TIMEOUT)
                seconds = time.monotonic() - begin
                problems = _admission_problems(command)
                (manifests / "good.json").unlink()
                if command.until(lambda: bool(command.records("terminated")), _TIMEOUT) is None:
                    problems.append("the removal of a manifest had no effect")
                problems += [*command.end(), *command.noise()]
                released.set()
        return Outcome.measured(
            watch.peak, start=seconds, stop=command.stop, problems=tuple(problems)
        )


def _hang(released: threading.Event) -> bytes:
    released.wait(_TIMEOUT)
    return b""


def _write(path: Path, resource: str) -> None:
    path.write_text(json.dumps(pod_manifest(path.stem, {resource: 1})))


def _command(root: Path, manifests: Path) -> AbstractContextManager[Running]:
    return running(root, "-o", "json", "--manifests", manifests, "--simulate", f"{_RESOURCE}=4")


def _is_good_admitted(command: Running) -> bool:
    return any(
        record["name"] == "default/good" and record["admitted"]
        for record in command.records("admission")
    )


def _admission_problems(command: Running) -> list[str]:
    if _is_good_admitted(command):
        return []
    return [f"the good pod was not admitted; last line: {''.join(command.errors[-1:]).strip()}"]


# -- CDI specifications --------------------------------------------------------------------

_GOOD_SPEC = {
    "cdiVersion": "0.6.0",
    "kind": "good.example.com/device",
    "devices": [{"name": "d0", "containerEdits": {"env": ["GOOD=1"]}}],
}
# Run in a separate process, which can be measured, and killed if reading does not end.
_READER = """
import sys
from pathlib import Path
from tools.harness.planted import apply
apply()
from devicemanager.kubelet.runtime import cdi
registry = cdi.load([Path(sys.argv[1])])
registry.resolve(["good.example.com/device=d0"])
print(len(registry.errors), max(map(len, registry.errors), default=0))
"""


def _specification_beside(make: Make) -> Outcome:
    with short_directory() as directory:
        make(directory / "bad.yaml")
        (directory / "good.json").write_text(json.dumps(_GOOD_SPEC))
        begin = time.monotonic()
        command = [sys.executable, "-c", _READER, str(directory)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as reader:
            with Watch(reader.pid) as watch:
                problems = _reader_problems(reader)
            seconds = time.monotonic() - begin
    return Outcome(start=seconds, memory=watch.peak.memory, problems=tuple(problems))


def _reader_problems(reader: subprocess.Popen[str]) -> list[str]:
    try:
        out, errors = reader.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        reader.kill()
        return ["the good device was not found: reading did not end"]
    if reader.returncode:
        return [f"the good device was not found: {(errors.splitlines() or ['killed'])[-1][:200]}"]
    count, longest = map(int, out.split())
    found = [] if count == 1 else [f"{count} bad files reported, not 1"]
    return found if longest < 2000 else [*found, f"a report of {longest} characters"]


_SPEC = "cdiVersion: 0.6.0\nkind: bad.example.com/d\ndevices:\n- name: d\n  containerEdits: {}\n"
_BOMBS = {
    "annotations": f"{bomb()}\nannotations: *a9\n{_SPEC}",
    "kind": f"{bomb()}\ncdiVersion: 0.6.0\nkind: *a9\ndevices: []\n",
    "devices": f"{bomb()}\ncdiVersion: 0.6.0\nkind: bad.example.com/d\ndevices: *a9\n",
}
_SPECIFICATIONS: Iterable[tuple[str, str, Make]] = (
    ("bomb", "references to references beside all fields", partial(text, f"{bomb()}\n{_SPEC}")),
    *(
        (f"bomb-{field}", f"references to references as {field}", partial(text, content))
        for field, content in _BOMBS.items()
    ),
    ("fifo", "a FIFO", os.mkfifo),
    ("zero", "a link to /dev/zero", partial(link, "/dev/zero")),
    ("sparse", "a sparse file of 2 GB", partial(sparse, size=2 << 30)),
    ("tag", "a Python tag", partial(text, "!!python/object/apply:os.getpid []\n")),
    ("timestamp", "a date as a key", partial(text, f"2001-01-01: x\n{_SPEC}")),
    ("set", "a set", partial(text, "!!set {a, b}\n")),
    ("nested", "100,000 brackets", partial(text, "[" * 100_000)),
)  # fmt: skip


for _name, _about, _make in _MANIFESTS:
    attack(f"manifest-{_name}", _about, _MANIFEST_LIMITS)(partial(_manifest_beside, _make))
for _name, _about, _make in _SPECIFICATIONS:
    attack(f"cdi-{_name}", f"CDI: {_about}", _CDI_LIMITS)(partial(_specification_beside, _make))
