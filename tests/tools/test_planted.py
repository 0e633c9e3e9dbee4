"""Attacks and fuzz targets name the bug that they guard against, and fail with a planted bug.

``make planted`` runs all attacks with their bugs. Here are the quick ones, and all fuzz targets.
"""

import time

import pytest

from tools.attack.guards import GUARDS
from tools.attack.registry import attacks
from tools.fuzz.model import Guard
from tools.fuzz.worker import targets
from tools.harness import planted, planted_bugs  # noqa: F401  # it registers the bugs

WITHOUT = """
    answers-4mb answers-envs cdi cdi-set cdi-tag cdi-timestamp checkpoint checkpoint-digits
    checkpoint-nested checkpoint-repeated-keys claim-state clients-1000 connections-flood
    control control-api control-bodies control-calls control-garbage control-unread
    control-waits disk-full dra-state file-size garbage half-open http-flood http-pages
    http-unread kubectl-pods link-itself list list-distinct list-duplicates list-empty-ids
    list-empty-nodes list-flood list-flood-clients list-flood-large list-gzip list-numa-40000
    list-numa-80000 list-numa-huge list-one-topology list-topology manifest-hung memory-200
    metadata-flood numa plugins-flood podresources recording register register-fifo
    register-gzip register-no-options register-no-socket register-silent rst-storm
    snapshot-archive snapshot-part watcher-deep watcher-flood watcher-silent
"""
QUICK_ATTACKS = ["escape-sequences", "link-root", "umask-0", "fork-exit"]


def test_every_attack_names_its_bug():
    used = {attack.guard for attack in attacks()}
    assert used == set(GUARDS.values()), "the table has an entry without an attack"
    assert all(guard.bug for guard in used)
    assert {guard.planted for guard in used} - {""} <= planted.PLANTED.keys()


def test_every_fuzz_target_names_its_bug():
    assert all(target.guards for target in targets())
    assert {target.planted for target in targets()} - {""} <= planted.PLANTED.keys()


def test_only_old_attacks_have_no_planted_bug():
    # New attacks and targets need one. The set only loses entries.
    without = {attack.name for attack in attacks() if not attack.guard.planted}
    assert without <= set(WITHOUT.split())
    assert {each.name for each in targets() if not each.planted} <= set(WITHOUT.split())


@pytest.mark.parametrize("name", sorted(planted.PLANTED))
def test_bug_can_be_planted_and_removed(name):
    # A bug whose code was renamed or removed would turn every attack red, for another reason.
    with planted.planted_here(name):
        assert planted.undoable()
    assert not planted.undoable()


def test_every_planted_bug_is_used():
    used = {attack.guard.planted for attack in attacks()} | {each.planted for each in targets()}
    assert used >= planted.PLANTED.keys()


@pytest.mark.parametrize("name", QUICK_ATTACKS)
def test_attack_notices_its_bug(name):
    (attack,) = (each for each in attacks() if each.name == name)
    with planted.selected(attack.guard.planted):
        assert attack.run().problems != ()


def guarded(target, seconds=60.0):
    run = Guard(target.load(), seconds)
    run(b"")
    return run


def slowest(target):
    """Return the CPU time of the slowest input, in seconds; no input has a finding."""
    run, times = guarded(target), []
    for data in target.inputs().values():
        begin = time.process_time()
        run(data)
        times.append(time.process_time() - begin)
    return max(times)


@pytest.mark.parametrize(
    "target", [each for each in targets() if each.planted], ids=lambda target: target.name
)
def test_corpus_of_fuzz_target_has_a_finding_with_its_bug(target):
    # A multiple of the usual time: coverage and a busy machine slow down both.
    limit = max(2 * slowest(target), 0.1)
    with planted.planted_here(target.planted):
        run = guarded(target, limit)
        findings = []
        for data in target.inputs().values():
            try:
                run(data)
            except Exception as error:
                findings.append(error)
    assert findings
    slowest(target)  # the bug is gone
