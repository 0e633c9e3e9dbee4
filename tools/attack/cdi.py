"""CDI specification files that are none, or are made to be slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tools.attack.manifests import bomb
from tools.attack.model import Limits, Outcome, attack
from tools.harness.process import short_directory
from tools.harness.usage import Watch

_TIMEOUT = 60.0
_LIMITS = Limits(start=3.0, memory=150.0)
"""``start`` is when the device of the good file was found."""
_GOOD = {
    "cdiVersion": "0.6.0",
    "kind": "good.example.com/device",
    "devices": [{"name": "d0", "containerEdits": {"env": ["GOOD=1"]}}],
}
_READER = """
import sys
from pathlib import Path
from devicemanager.kubelet.runtime import cdi
registry = cdi.load([Path(sys.argv[1])])
registry.resolve(["good.example.com/device=d0"])
print(len(registry.errors), max(map(len, registry.errors), default=0))
"""


def _run(make: Callable[[Path], object]) -> Outcome:
    with short_directory() as place:
        make(place / "bad.yaml")
        (place / "good.json").write_text(json.dumps(_GOOD))
        begin = time.monotonic()
        command = [sys.executable, "-c", _READER, str(place)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as reader:
            with Watch(reader.pid) as watch:
                problems = _problems(reader)
            seconds = time.monotonic() - begin
    return Outcome(start=seconds, memory=watch.peak.memory, problems=tuple(problems))


def _problems(reader: subprocess.Popen[str]) -> list[str]:
    try:
        out, errors = reader.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        reader.kill()
        return ["the good device was not found: reading never ended"]
    if reader.returncode:
        return [f"the good device was not found: {(errors.splitlines() or ['killed'])[-1][:200]}"]
    count, longest = map(int, out.split())
    found = [] if count == 1 else [f"{count} bad files reported, not 1"]
    return found if longest < 2000 else [*found, f"a report of {longest} characters"]


def _text(text: str, path: Path) -> None:
    path.write_text(text)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


_SPEC = "cdiVersion: 0.6.0\nkind: bad.example.com/d\ndevices:\n- name: d\n  containerEdits: {}\n"
_BOMBS = {
    "annotations": f"{bomb()}\nannotations: *a9\n{_SPEC}",
    "kind": f"{bomb()}\ncdiVersion: 0.6.0\nkind: *a9\ndevices: []\n",
    "devices": f"{bomb()}\ncdiVersion: 0.6.0\nkind: bad.example.com/d\ndevices: *a9\n",
}
_BAD: Iterable[tuple[str, str, Callable[[Path], object]]] = (
    ("bomb", "references to references beside all fields", partial(_text, f"{bomb()}\n{_SPEC}")),
    *(
        (f"bomb-{field}", f"references to references as {field}", partial(_text, text))
        for field, text in _BOMBS.items()
    ),
    ("fifo", "a FIFO", _fifo),
    ("zero", "a link to /dev/zero", _zero),
    ("sparse", "2 GB without data", _sparse),
    ("tag", "a tag of Python's", partial(_text, "!!python/object/apply:os.getpid []\n")),
    ("timestamp", "a date as a key", partial(_text, f"2001-01-01: x\n{_SPEC}")),
    ("set", "a set", partial(_text, "!!set {a, b}\n")),
    ("nested", "100,000 brackets", partial(_text, "[" * 100_000)),
)  # fmt: skip

for _name, _about, _make in _BAD:
    attack(f"cdi-{_name}", f"CDI: {_about}", _LIMITS)(partial(_run, _make))
