"""The soak test: a tiny run, and runs that must fail."""

import attrs
import pytest

from devicemanager.kubelet.mock import MockKubelet
from tools.harness.usage import Reading, growth
from tools.soak import churn
from tools.soak.__main__ import HEAD, main

READING = Reading(memory=50.0, objects=40_000, descriptors=20, threads=15, blocks=300_000)


def test_tiny_soak_succeeds(capsys):
    # Restarts in each lap: the first rejection imports what it needs.
    assert main(["--admissions", "20", "--restarts", "6", "--laps", "3"]) == 0
    head, *laps, verdict = capsys.readouterr().out.splitlines()
    assert head == HEAD
    assert len(laps) == 3
    assert {len(each) for each in laps} == {len(head)}
    assert verdict.startswith("soak: ok: ")
    assert " s, 20 admissions and releases, 6 plugin restarts, p50 at the end " in verdict


def test_tiny_mixed_soak_succeeds(capsys):
    assert main(["--mixed", "--minutes", "0.01", "--laps", "1"]) == 0
    lap, verdict = capsys.readouterr().out.splitlines()
    activities = lap.split("; ")[1]
    for each in ("admit", "claim", "follow", "list", "reject", "scrape", "use_control", "wait"):
        assert f" {each}" in f" {activities}"
    assert verdict.startswith("soak: ok: ")


def test_leftover_pods_fail_the_soak(capsys, monkeypatch):
    # Pods that are not terminated are left when the lap is over.
    monkeypatch.setattr(MockKubelet, "terminate", lambda self, *uids: None)
    assert main(["--admissions", "20", "--restarts", "0"]) == 1
    out = capsys.readouterr().out
    assert "soak: FAILED: " in out
    assert " s, 0 admissions" in out
    assert "the kubelet shows wrong devices for 2 pods, the first is 00000000-" in out


def test_time_limit_ends_a_soak(capsys):
    assert main(["--admissions", "60", "--restarts", "0", "--minutes", "0"]) == 0
    assert " s, 0 admissions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "more"),
    [("memory", 4.5), ("objects", 401), ("blocks", 10_001), ("descriptors", 5), ("threads", 5)],
)
def test_growth_is_reported(what, more):
    before = getattr(READING, what)
    readings = [READING] * 4 + [attrs.evolve(READING, **{what: before + more})] * 3
    assert growth(readings) == [f"{what} grew from {before:g} to {before + more:g}"]
    assert growth(readings[::-1]) == []
    assert growth([]) == []


def test_one_unusual_lap_is_not_growth():
    assert growth([READING] * 9 + [attrs.evolve(READING, threads=40)]) == []


def test_shares_of_laps_add_up():
    amount = churn.Amount(103, 7, 1.0)
    assert sum(amount.share(103, n) for n in range(amount.laps)) == 103
    assert sum(amount.share(7, n) for n in range(amount.laps)) == 7
