"""Damage on purpose: a few seeds of it, and whether the tool sees what is wrong."""

from __future__ import annotations

import attrs
import pytest

import checkpoint
from tools.damage import checkpoints, snapshots
from tools.damage.command import VECTORS, main, play, read_files
from tools.damage.ways import WAYS, damaged

FILES = read_files(VECTORS)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_costs_no_more_than_the_damage(seed):
    _, faults = play(FILES, seed)
    assert faults == []


def test_each_seed_is_a_way_of_its_own_and_comes_back():
    ways = {damaged(FILES[0], seed)[0] for seed in range(60)}
    assert ways == set(WAYS)
    assert damaged(FILES[0], 7) == damaged(FILES[0], 7)


def test_the_command_tells_how_many_there_were(capsys):
    assert main(["--seeds", "2", "--first", "40"]) == 0
    assert capsys.readouterr().out.endswith(": 0 went wrong\n")


# --- what is wrong is seen

WHOLE = max(FILES, key=len)
CUT = WHOLE[:-20]


def seen(monkeypatch, **changes):
    """What is found if a repair is altered so."""
    honest = checkpoint.repair

    def altered(data):
        return attrs.evolve(honest(data), **changes)

    monkeypatch.setattr(checkpoint, "repair", altered)
    return list(checkpoints.faults(WHOLE, CUT))


def test_a_lost_entry_is_seen(monkeypatch):
    none = checkpoint.Checkpoint((), {})
    found = seen(monkeypatch, checkpoint=none, data=checkpoint.dumps(none))
    assert any(each.startswith("lost: ") for each in found)


def test_an_entry_that_was_made_up_is_seen(monkeypatch):
    entry = checkpoint.PodDevicesEntry("nobody", "main", "vendor.com/gpu", None, None)
    more = checkpoint.Checkpoint((entry,), {})
    found = seen(monkeypatch, checkpoint=more, data=checkpoint.dumps(more))
    assert "made up: 'nobody'" in found


def test_a_file_that_no_kubelet_loads_is_seen(monkeypatch):
    found = seen(monkeypatch, data=b"{}")
    assert "a kubelet would not load the repaired file as it is told" in found


def test_a_crash_is_seen(monkeypatch):
    def broken(*_):
        raise LookupError("oops")

    monkeypatch.setattr(snapshots, "findings", broken)
    assert any("raised LookupError('oops')" in each for each in play(FILES, 3)[1])
