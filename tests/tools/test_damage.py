"""``tools.damage``: a few seeds, and errors that the tool must notice."""

from __future__ import annotations

import attrs
import pytest

import checkpoint
from checkpoint import dra
from tools.damage import checkpoints, claims, snapshots
from tools.damage.__main__ import VECTORS, main, play, read_files
from tools.damage.ways import WAYS, damaged

FILES = read_files(VECTORS)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_files_are_handled_without_errors(seed):
    _, faults = play(FILES, seed)
    assert faults == []


def test_seeds_are_repeatable_and_cover_all_ways():
    ways = {damaged(FILES[0], seed)[0] for seed in range(60)}
    assert ways == set(WAYS)
    assert damaged(FILES[0], 7) == damaged(FILES[0], 7)


def test_command_prints_the_number_of_failures(capsys):
    assert main(["--seeds", "2", "--first", "40"]) == 0
    assert capsys.readouterr().out.endswith(": 0 failed\n")


# --- errors are noticed

WHOLE = max(FILES, key=len)
CUT = WHOLE[:-20]


def faults_with(monkeypatch, **changes):
    """Return the errors found with a repair that is changed like this."""
    correct = checkpoint.repair

    def altered(data):
        return attrs.evolve(correct(data), **changes)

    monkeypatch.setattr(checkpoint, "repair", altered)
    return list(checkpoints.faults(WHOLE, CUT))


def test_lost_entry_is_noticed(monkeypatch):
    none = checkpoint.Checkpoint((), {})
    found = faults_with(monkeypatch, checkpoint=none, data=checkpoint.dumps(none))
    assert any(each.startswith("lost: ") for each in found)


def test_invented_entry_is_noticed(monkeypatch):
    entry = checkpoint.PodDevicesEntry("invented", "main", "vendor.com/gpu", None, None)
    more = checkpoint.Checkpoint((entry,), {})
    found = faults_with(monkeypatch, checkpoint=more, data=checkpoint.dumps(more))
    assert "invented: 'invented'" in found


def test_unloadable_repaired_file_is_noticed(monkeypatch):
    found = faults_with(monkeypatch, data=b"{}")
    assert "a kubelet would load the repaired file differently" in found


def test_crash_is_noticed(monkeypatch):
    def broken(*_):
        raise LookupError("oops")

    monkeypatch.setattr(snapshots, "findings", broken)
    assert any("raised LookupError('oops')" in each for each in play(FILES, 3)[1])


# --- the state file of the DRA manager

STATE = max(claims.read_files(), key=len)


def state_faults_with(monkeypatch, **changes):
    """Return the errors found with a repair of the state file that is changed like this."""
    correct = dra.repair
    monkeypatch.setattr(dra, "repair", lambda data: attrs.evolve(correct(data), **changes))
    return list(claims.faults(STATE, STATE[:-20]))


def test_lost_claim_is_noticed(monkeypatch):
    none = dra.State(())
    found = state_faults_with(monkeypatch, state=none, data=dra.dumps(none))
    assert any(each.startswith("lost: ") for each in found)


def test_invented_claim_is_noticed(monkeypatch):
    more = dra.State((dra.ClaimState("ml", "invented", "u"),))
    found = state_faults_with(monkeypatch, state=more, data=dra.dumps(more))
    assert "invented: 'invented'" in found


def test_unloadable_repaired_state_file_is_noticed(monkeypatch):
    found = state_faults_with(monkeypatch, data=b"")
    assert "a kubelet would load the repaired file differently" in found
