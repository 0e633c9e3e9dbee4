"""Damaged state files of the DRA manager: recognition, inspection and repair."""

from __future__ import annotations

import json

import attrs
import pytest

import checkpoint
from checkpoint import dra
from checkpoint.dra import ClaimState, Device, DriverState, State

ONE = ClaimState(
    "ml",
    "one",
    "uid-1",
    frozenset({"pod-1", "pod-2"}),
    {"gpu.example.com": DriverState((Device("w", "d0", "share", ("r",), ("a/b=c",)),))},
)
TWO = ClaimState("ml", "two", "uid-2", frozenset({"pod-1"}), {"net.example.com": DriverState()})
DATA = dra.dumps(State((ONE, TWO)))
OLD = dra.dumps(State((ONE, TWO)), share_ids=False)


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (DATA, "", True),
        (DATA[:30], "", True),
        (DATA[200:], "", True),
        (DATA.lower(), "", True),
        (dra.dumps(State()), "", True),
        (b"{}", "", True),
        (b"{}", "/x/kubelet_internal_checkpoint", False),
        (b'{"version":"v1","entries":[],"checksum":1}', "", True),
        (checkpoint.dumps(checkpoint.Checkpoint(None, None)), "/x/dra_manager_state", False),
        (checkpoint.dumps(checkpoint.Checkpoint((), {"ClaimUID/x": ()})), "", False),
        (b"", "", False),
        (b"", "/x/dra_manager_state", True),
        (b"noise", "/x/dra_manager_state.before-1", True),
    ],
)
def test_state_file_is_recognized(data, name, expected):
    assert dra.is_state_file(data, name) is expected


@pytest.mark.parametrize("data", [DATA, OLD, dra.dumps(State()), dra.dumps(State(())), b"{}"])
def test_intact_file_has_no_problems(data):
    found = dra.inspect(data)
    assert (found.problems, found.lost, found.is_complete) == ((), (), True)
    assert found.found == (None if data == b"{}" else found.expected)
    assert found.state == dra.loads(data)
    assert not dra.repair(data).changed
    assert dra.repair(data).data == data


def test_claims_before_and_behind_the_damage_are_read():
    # A bracket inside the first claim.
    data = DATA.replace(b'PodUIDs\\":{', b'PodUIDs\\":', 1)
    found = dra.inspect(data)
    assert found.state == State((TWO,))
    assert found.lost == ('a claim with namespace "ml", name "one", UID "uid-1"',)
    assert found.problems[0].startswith("Data: not JSON at character ")
    # The outer text: a quote without its backslash.
    data = DATA.replace(b'\\"PodUIDs', b'x"PodUIDs', 1)
    assert dra.inspect(data).state == State((TWO,))


def test_truncated_file():
    cut = DATA.index(b"uid-2") + 5
    found = dra.inspect(DATA[:cut])
    assert found.state == State((ONE,))
    assert found.lost == ("a claim",)
    assert found.found is None
    repair = dra.repair(DATA[:cut])
    assert dra.loads(repair.data) == State((ONE,))
    assert (repair.dropped, repair.problems) == (found.lost, found.problems)
    assert "drivers keep lost claims prepared" in repair.notes[0]


def test_claim_with_wrong_contents_is_left_out():
    inner = json.loads(DATA)["Data"].replace('"pod-2":{}', '"pod-2":7')
    found = dra.inspect(json.dumps({"Data": inner, "Checksum": 7}).encode())
    assert found.state == State((TWO,))
    (problem,) = found.problems
    assert problem == 'ClaimInfoStateList[0].PodUIDs["pod-2"]: expected an object, found a number'


def test_wrong_checksum_is_corrected_in_the_format_of_the_file():
    data = OLD.replace(b"pod-1", b"pod-9")
    repair = dra.repair(data)
    assert "the file was altered" in repair.problems[0]
    assert "it is unknown what was altered" in repair.notes[0]
    assert b"ShareID" not in repair.data
    assert [claim.name for claim in dra.loads(repair.data).claims or ()] == ["one", "two"]


@pytest.mark.parametrize("fields", [{}, {"Checksum": None}])
def test_missing_checksum_is_named(fields):
    data = json.dumps({"Data": json.loads(DATA)["Data"], **fields}).encode()
    found = dra.inspect(data)
    assert (found.state, found.is_complete) == (State((ONE, TWO)), True)
    assert found.found is dra.inspect(b"{}").found is None
    text = f"the file has no checksum, but its data has checksum {found.expected}: "
    assert found.problems == (text + "the file was altered",)
    with pytest.raises(checkpoint.ChecksumMismatch) as caught:
        dra.loads(data)
    assert (caught.value.problem, caught.value.found) == (*found.problems, None)
    assert dra.loads(dra.repair(data).data) == State((ONE, TWO))


def test_repeated_and_damaged_claims_are_dropped():
    twice = dra.dumps(State((TWO, ONE, attrs.evolve(TWO))))
    repair = dra.repair(twice)
    assert repair.dropped == ('claim "ml/two": a later entry replaces it',)
    assert dra.loads(repair.data) == State((ONE, TWO))
    noisy = DATA.replace(b"uid-1", b"uid-\xff")
    repair = dra.repair(noisy)
    assert repair.dropped == ('claim "ml/one": its text is damaged',)
    assert repair.state == State((TWO,))


def test_old_format_has_no_claims():
    found = dra.inspect(b'{"version":"v1","entries":[{"ClaimUID":"u"}],"checksum":7}')
    assert found.state == State(())
    assert "before v1.32" in found.problems[0]


def test_without_pods():
    state = State((ONE, TWO))
    assert dra.without_pods(state, ["pod-1"]).claims == (
        ClaimState("ml", "one", "uid-1", frozenset({"pod-2"}), ONE.drivers),
    )
    assert dra.without_pods(state, ["other"]) == state
    assert dra.without_pods(State(), ["pod-1"]) == State()


def test_search_of_a_hostile_text_is_linear():
    data = b'{"Data":"' + b'{\\"ClaimUID\\":[' * 200_000
    found = dra.inspect(data)
    assert found.state == State(())
