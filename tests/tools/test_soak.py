"""The soak itself: a tiny run, and that its verdict can be a bad one."""

import attrs
import pytest

from devicemanager.kubelet.mock import MockKubelet
from tools.soak import churn, readings
from tools.soak.command import main
from tools.soak.readings import Lap, Reading


def lap(number: int, **reading: float) -> Lap:
    found = attrs.evolve(Reading(50.0, 40_000, 20, 15), **reading)
    return Lap(number, 100, 1, 0, 1.0, p50=2.0, baseline=1.0, reading=found)


def test_a_tiny_soak_ends_well(capsys):
    # Restarts in each lap: the first rejection imports what it needs.
    assert main(["--admissions", "20", "--restarts", "6", "--laps", "3"]) == 0
    head, *laps, verdict = capsys.readouterr().out.splitlines()
    assert head == readings.HEAD
    assert len(laps) == 3
    assert verdict.startswith("soak: ok: 20 admissions and releases, 6 plugin restarts: ")


def test_what_a_check_finds_fails_the_soak(capsys, monkeypatch):
    # Pods that are not terminated are left when the lap is over.
    monkeypatch.setattr(MockKubelet, "terminate", lambda self, *uids: None)
    assert main(["--admissions", "20", "--restarts", "0"]) == 1
    assert "soak: FAILED: 0 admissions" in (out := capsys.readouterr().out)
    assert "2 pods are known and 2 hold devices, not 0" in out


def test_time_ends_a_soak_early(capsys):
    assert main(["--admissions", "60", "--restarts", "0", "--minutes", "0"]) == 0
    assert "soak: ok: 0 admissions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "more"), [("memory", 4.5), ("objects", 401), ("descriptors", 5), ("threads", 5)]
)
def test_what_grows_is_named(what, more):
    before = getattr(lap(0).reading, what)
    laps = [lap(0)] + [lap(n) for n in range(3)] + [lap(n, **{what: before + more}) for n in "abc"]
    assert readings.grown(laps) == [f"{what} grew from {before:g} to {before + more:g}"]
    assert readings.grown(laps[::-1]) == []
    assert "FAILED" in readings.verdict(laps, readings.grown(laps))


def test_one_odd_lap_is_no_growth():
    laps = [lap(n) for n in range(9)] + [lap(9, threads=40)]
    assert readings.grown(laps) == []


def test_shares_make_the_whole():
    amount = churn.Amount(103, 7, 1.0)
    assert sum(amount.share(103, n) for n in range(amount.laps)) == 103
    assert sum(amount.share(7, n) for n in range(amount.laps)) == 7
