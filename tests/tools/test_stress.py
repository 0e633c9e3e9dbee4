"""The stress itself: a tiny run, and that its verdict can be a bad one."""

import re
import tempfile
import threading
from pathlib import Path

from devicemanager.kubelet.mock import MockKubelet
from tools.stress.command import main
from tools.stress.remains import Remains

TINY = ["--threads", "2", "--minutes", "0.003", "--laps", "1", "--seed", "1"]


def test_a_tiny_stress_ends_well(capsys):
    assert main(TINY) == 0
    head, lap, verdict = capsys.readouterr().out.splitlines()
    assert head == "stress: 2 threads, 0.003 minutes, seed 1"
    assert lap.startswith("lap 1: ")
    assert " admitted, " in verdict
    assert verdict.startswith("stress: ok: ")
    assert verdict.endswith(": nothing lost, nothing left, self_check agrees")


def test_a_device_that_is_lost_fails_the_stress(capsys, monkeypatch):
    monkeypatch.setattr(MockKubelet, "devices", lambda self, uid: {})
    assert main(TINY) == 1
    # Found by a thread that lists, or at the end of the lap: whichever comes first.
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert re.search(r"\[\], (it was given|told) \['device-", verdict)


def test_what_is_left_is_named(tmp_path):
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="forgotten")
    with Remains(seconds=0.0) as remains:
        thread.start()
        opened = [(tmp_path / str(number)).open("w") for number in range(3)]
        Path(tempfile.mkdtemp(prefix="dm-")).rename(Path(tempfile.gettempdir(), "dm-lost"))
    ended.set()
    thread.join()
    for each in opened:
        each.close()
    assert remains.found == [
        "thread forgotten is left",
        "3 descriptors are left",
        "dm-lost is left in the directory for temporary files",
    ]
