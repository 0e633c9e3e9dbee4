"""Attacks and fuzz targets name the bug that they guard against, and fail with a planted bug.

``make planted`` runs all attacks with their bugs. Here are the quick ones, and all fuzz targets.
"""

import time

import pytest

from devicemanager.claims.cel import limits, running
from tools.attack.guards import GUARDS, guard_of
from tools.attack.registry import attacks
from tools.fuzz.model import Guard
from tools.fuzz.worker import targets
from tools.harness import planted, planted_bugs  # noqa: F401  # it registers the bugs

QUICK_ATTACKS = [
    "escape-sequences",
    "link-root",
    "link-itself",
    "umask-0",
    "fork-exit",
    "cdi-tag",
    "checkpoint-nested",
    "memory-200",
]


def test_every_attack_has_a_planted_bug():
    used = {attack.guard for attack in attacks()}
    assert used == set(GUARDS.values()), "the table has an entry without an attack"
    assert all(guard.bug for guard in used)
    assert {guard.planted for guard in used} <= planted.PLANTED.keys()


def test_attack_outside_of_the_table_is_an_error():
    with pytest.raises(KeyError, match=r"no-such is not in tools/attack/guards\.py: add the bug"):
        guard_of("no-such")


def test_every_fuzz_target_has_a_planted_bug():
    assert all(target.guards for target in targets())
    assert {target.planted for target in targets()} <= planted.PLANTED.keys()


@pytest.mark.parametrize("name", sorted(planted.PLANTED))
def test_bug_can_be_planted_and_removed(name):
    # A bug whose code was renamed or removed would turn every attack red, for another reason.
    with planted.planted_here(name):
        assert planted.undoable()
    assert not planted.undoable()


def test_every_planted_bug_is_used():
    used = {attack.guard.planted for attack in attacks()} | {each.planted for each in targets()}
    assert used == planted.PLANTED.keys()


@pytest.mark.parametrize("name", QUICK_ATTACKS)
def test_attack_notices_its_bug(name):
    (attack,) = (each for each in attacks() if each.name == name)
    with planted.selected(attack.guard.planted):
        assert attack.run().problems != ()


def seconds(run, data):
    begin = time.process_time()
    run(data)
    return time.process_time() - begin


def slowest(target):
    """Return the CPU time of the slowest input, in seconds; no input has a finding."""
    run = Guard(target.load(), times=1e6)
    run(b"")
    return max(seconds(run, data) for data in target.inputs().values())


def has_finding(run, data, limit):
    try:
        return seconds(run, data) > limit
    except Exception:
        return True


@pytest.fixture
def small_cel_bounds(monkeypatch):
    # With the usual bounds, an expression without bounds takes only three times as long as with
    # them. The CPU time of one run varies by as much.
    monkeypatch.setattr(running, "MAX_COST", 20_000)
    monkeypatch.setattr(limits, "MAX_WORK", 60_000)


# Without its bound, an expression needs much CPU time, and a busy machine has little.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
@pytest.mark.usefixtures("small_cel_bounds")
def test_corpus_of_fuzz_target_has_a_finding_with_its_bug(target):
    # A multiple of the usual time: coverage and a busy machine slow down both.
    limit = max(2 * slowest(target), 0.1)
    with planted.planted_here(target.planted):
        run = Guard(target.load(), times=1e6)
        assert any(has_finding(run, data, limit) for data in target.inputs().values())
    assert not planted.undoable()
