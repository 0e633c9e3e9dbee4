"""The stress test: a tiny run, and runs that must fail."""

import re
import tempfile
import threading
from pathlib import Path

from devicemanager.kubelet.mock import MockKubelet
from tools.harness.usage import Leftovers
from tools.stress.__main__ import main

TINY = ["--threads", "2", "--minutes", "0.003", "--laps", "1", "--seed", "1"]


def test_tiny_stress_succeeds(capsys):
    assert main(TINY) == 0
    head, lap, verdict = capsys.readouterr().out.splitlines()
    assert head == "stress: 2 threads, 0.003 minutes, seed 1"
    assert lap.startswith("lap 1: ")
    assert " admitted, " in verdict
    assert verdict.startswith("stress: ok: seed 1, ")
    assert verdict.endswith(": nothing lost, nothing left, all sources agree")


def test_lost_device_fails_the_stress(capsys, monkeypatch):
    monkeypatch.setattr(MockKubelet, "devices", lambda self, uid: {})
    assert main(TINY) == 1
    # Noticed by an actor that reads, or by the check after the lap.
    verdict = capsys.readouterr().out.splitlines()[-1]
    wrong = r"\[\](?: for pod pod-\d+)?, expected \['good\.example\.com/device "
    assert re.search(wrong, verdict)


def test_leftovers_are_reported(tmp_path):
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="forgotten")
    with Leftovers(seconds=0.0) as leftovers:
        thread.start()
        opened = [(tmp_path / str(number)).open("w") for number in range(3)]
        Path(tempfile.mkdtemp(prefix="dm-")).rename(Path(tempfile.gettempdir(), "dm-lost"))
    ended.set()
    thread.join()
    for each in opened:
        each.close()
    assert leftovers.found == [
        "thread forgotten still runs",
        "3 descriptors are still open",
        "dm-lost was left in the directory for temporary files",
    ]
