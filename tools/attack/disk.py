"""A full disk, in the middle of admissions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

import checkpoint
from tools.attack.model import Outcome, Target, attack
from tools.harness.plugin import RESOURCE, plugin_process
from tools.harness.process import HelperProcess, RequestFailed, short_directory
from tools.harness.usage import Watch

_DEVICES = 400
_FILE_LIMIT = 8_000
_DISK = "64k"


def _run(has_disk: bool) -> Outcome:
    with (
        short_directory() as place,
        _disk(place if has_disk else None),
        HelperProcess("tools.attack.node", place, json.dumps({})) as node,
        plugin_process(Target(place).plugin_dir, _DEVICES) as good,
    ):
        good.ask("register")
        node.ask("wait", RESOURCE, _DEVICES, 20.0)
        with Watch(node.process.pid) as watch:
            slowest, problems = _fill(node, Target(place), has_disk)
    return Outcome.measured(watch.peak - watch.before, admission=slowest, problems=tuple(problems))


@contextmanager
def _disk(place: Path | None) -> Iterator[None]:
    """A small file system of its own in that directory."""
    if place is None:
        yield
        return
    size = f"size={_DISK},mode=0750"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(node: HelperProcess, target: Target, has_disk: bool) -> tuple[float, list[str]]:
    """Admit until that fails; make room; admit again. The slowest, and what is wrong."""
    process = psutil.Process(node.process.pid)
    if not has_disk:
        process.rlimit(psutil.RLIMIT_FSIZE, (_FILE_LIMIT, psutil.RLIM_INFINITY))
    held, rejections, slowest = _admit(node, range(_DEVICES))
    problems = [] if rejections else ["the disk was never full: nothing is proved"]
    problems += [] if _on_disk(target) == held else ["full: the file is not what was answered"]
    if has_disk:
        size = "remount,size=16m,mode=0750"
        subprocess.run(["mount", "-o", size, str(target.root)], check=True)
    else:
        process.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    more, rejected, slower = _admit(node, range(1000, 1010))
    problems += [f"rejected with room: {rejected[0]}"] if rejected else []
    problems += [] if _on_disk(target) == held | more else ["room: the file is not what was held"]
    wrong = [text for text in rejections if "\n" in text or "Rejected" not in text]
    return max(slowest, slower), [*problems, *(f"rejection: {text}" for text in wrong[:1])]


def _admit(node: HelperProcess, numbers: range) -> tuple[dict[str, list[str]], list[str], float]:
    """Pods to devices, rejections, the slowest in s; ten rejections are enough."""
    held: dict[str, list[str]] = {}
    rejections: list[str] = []
    slowest = 0.0
    for number in numbers:
        try:
            answer = node.ask("admit", f"pod-{number}", RESOURCE, 1)
        except RequestFailed as error:
            rejections.append(str(error))
            if len(rejections) == 10:
                break
        else:
            held[f"pod-{number}"] = answer.value
            slowest = max(slowest, answer.seconds)
    return held, rejections, slowest


def _on_disk(target: Target) -> dict[str, list[str]]:
    entries = checkpoint.load(target.checkpoint).entries or ()
    return {
        entry.pod_uid: sorted(id_ for ids in (entry.device_ids or {}).values() for id_ in ids or ())
        for entry in entries
    }


attack("file-size", "no file may grow beyond 8 kB")(partial(_run, False))
if os.geteuid() == 0:
    # Only root can mount a file system.
    attack("disk-full", f"a disk of {_DISK}B runs full")(partial(_run, True))
