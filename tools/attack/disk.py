"""Attack admissions with a full disk.

If the kubelet cannot save an admission, it must reject the pod with a one-line message and leave
the checkpoint unchanged. When there is space again, admissions must succeed without a restart.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

import checkpoint
from tools.attack.model import Outcome, Target, attack
from tools.harness.model import Devices, devices, devices_on_disk
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
        HelperProcess("tools.attack.node", place, "{}") as node,
        plugin_process(Target(place).plugin_dir, _DEVICES) as good,
    ):
        good.ask("register")
        node.ask("wait", RESOURCE, _DEVICES, 20.0)
        # The kubelet has everything that admissions need, so any further growth is due to failures.
        with Watch(node.process.pid) as watch:
            slowest, problems = _fill(node, Target(place), has_disk)
    return Outcome.measured(watch.peak - watch.before, admission=slowest, problems=tuple(problems))


@contextmanager
def _disk(place: Path | None) -> Iterator[None]:
    """Mount a small file system on a directory during a ``with`` block. Do nothing for None."""
    if place is None:
        yield
        return
    size = f"size={_DISK},mode=0750"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        # A lazy unmount, because the kubelet may still have files open.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(node: HelperProcess, target: Target, has_disk: bool) -> tuple[float, list[str]]:
    """Admit pods until admissions fail, add disk space, and admit pods again. Return the slowest
    time in seconds, and problems."""
    process = psutil.Process(node.process.pid)
    if not has_disk:
        process.rlimit(psutil.RLIMIT_FSIZE, (_FILE_LIMIT, psutil.RLIM_INFINITY))
    answered, errors, slowest = _admit(node, range(_DEVICES))
    problems = []
    if _on_disk(target) != answered:
        problems.append("full disk: the checkpoint does not match the admissions")
    problems += [] if errors else ["no admission failed, so nothing was tested"]
    if has_disk:
        size = "remount,size=16m,mode=0750"
        subprocess.run(["mount", "-o", size, str(target.root)], check=True)
    else:
        process.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    more, rejected, slower = _admit(node, range(1000, 1010))
    problems += [f"rejected with free space: {rejected[0]}"] if rejected else []
    if _on_disk(target) != answered | more:
        problems.append("free space: the checkpoint does not match the admissions")
    wrong = [error for error in errors if "\n" in error or "Rejected" not in error]
    return max(slowest, slower), [*problems, *(f"rejection: {error}" for error in wrong[:1])]


def _admit(node: HelperProcess, numbers: range) -> tuple[dict[str, Devices], list[str], float]:
    """Admit pods until ten were rejected. Return the devices of admitted pods, the errors, and the
    slowest time in seconds."""
    answered: dict[str, Devices] = {}
    errors: list[str] = []
    slowest = 0.0
    for number in numbers:
        try:
            answer = node.ask("admit", f"pod-{number}", RESOURCE, 1)
        except RequestFailed as error:
            errors.append(str(error))
            # Ten rejections show how the kubelet rejects pods, and whether it stays consistent.
            if len(errors) == 10:
                break
        else:
            answered[f"pod-{number}"] = devices({RESOURCE: answer.value})
            slowest = max(slowest, answer.seconds)
    return answered, errors, slowest


def _on_disk(target: Target) -> dict[str, Devices]:
    return devices_on_disk(checkpoint.load(target.checkpoint))


attack("file-size", "files cannot grow beyond 8 kB")(partial(_run, False))
if os.geteuid() == 0:
    # Only root can mount a file system.
    attack("disk-full", f"a disk of {_DISK}B runs full")(partial(_run, True))
