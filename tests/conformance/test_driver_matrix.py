"""The checks of drivers judge correctly: the good driver passes, and switches fail their checks.

This is a sample; ``make conformance`` runs the whole matrix.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import pytest

from devicemanager.conformance import Check, Failed, Outcome, Scene, Severity, Skipped, Warned, run
from devicemanager.conformance.drivers import DRIVERS, driver_checks
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.drivers.stage import DriverStage
from devicemanager.conformance.registry import selected
from devicemanager.kubelet.settings import Settings
from tests.conformance.driver_matrix import (
    CASES,
    DRIVER,
    GOOD,
    SUBJECTS,
    Case,
    broken,
    driver,
    limits,
)

_SETTINGS = Settings(durability="process")
_BY_SWITCH = {case.switch: case for case in CASES}

_ALONE = ("removes-others", "registers-once")
"""Switches of checks that start a driver for themselves."""

_TOGETHER = (
    ("changing-info", "lists-unserved", "refuses-reserved", "subrequest", "unprepares-once",
     "accepts-unknown", "foreign-device", "foreign-config", "shares-device", "no-allocation",
     "ignores-uid", "bad-status", "refuses-admin", "leaves-cdi", "own-domain", "no-owner",
     "partial-health", "bad-metadata"),
    ("prepares-missing",),
)  # fmt: skip
"""Groups of switches that do not hide each other."""


def select(ids: Sequence[str]) -> Sequence[Check]:
    return selected(DRIVERS.checks(), DRIVERS.families, ids, ())


def test_each_check_has_a_switch_that_fails_it() -> None:
    assert {id_ for case in CASES for id_ in case.fails} == {each.id for each in driver_checks()}


def test_side_effects_of_switches_have_a_reason() -> None:
    for case in CASES:
        assert bool(case.also) == bool(case.why), case.switch
        assert not {*case.also} & {*case.fails}, case.switch
    assert len(_BY_SWITCH) == len(CASES)


def test_every_check_has_all_texts() -> None:
    known = {each.id for each in driver_checks()}
    for each in driver_checks():
        for text in (each.title, each.does, each.expects, each.production):
            assert text and text == text.strip() and not text.endswith("."), each.id
        assert each.links, each.id
        assert {*each.effect_of, *each.repeats} <= known - {each.id}, each.id


def test_checks_are_ordered_by_family_and_number() -> None:
    ids = [each.id for each in driver_checks()]
    order = list(DRIVERS.families)
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids, key=lambda id_: (order.index(id_[:2]), id_))


@contextlib.contextmanager
def stage_of(*cases: Case) -> Iterator[DriverStage]:
    """Start one driver with the switches of all cases."""
    switches = [name for case in cases for name in (case.switch, *case.base)]
    changes = {name: value for case in cases for name, value in case.limits.items()}
    stage = DriverStage(driver(*switches), attrs.evolve(limits(), **changes), _SETTINGS)
    with contextlib.closing(stage):
        DriverRun(stage, (DRIVER,), "start").start()
        yield stage


@pytest.mark.timeout(120)
def test_good_driver_passes() -> None:
    shared = [each for each in driver_checks() if each.scene is Scene.REGISTERED]
    report = run(
        attrs.evolve(driver(*GOOD), resources=[DRIVER]),
        shared,
        limits=limits(),
        settings=_SETTINGS,
        suite=DRIVERS,
    )
    bad = [each for each in report.verdicts if each.outcome is not Outcome.PASS]
    assert [(each.check.id, each.seen) for each in bad] == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("switches", _TOGETHER, ids=lambda group: group[0])
def test_switches_together_fail_their_checks(switches: tuple[str, ...]) -> None:
    """With one driver for many checks, which start nothing."""
    cases = [_BY_SWITCH[switch] for switch in switches]
    with stage_of(*cases) as stage:
        for case in cases:
            for check in select(case.fails):
                with pytest.raises((Failed, Warned)):
                    check.run(DriverRun(stage, (DRIVER,), "seed"))
                    pytest.fail(f"{check.id} passes with {case.switch}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("switch", _ALONE)
def test_switch_fails_its_checks(switch: str) -> None:
    case = _BY_SWITCH[switch]
    report = run(
        broken(case), select(case.fails), limits=limits(case), settings=_SETTINGS, suite=DRIVERS
    )
    for each in report.verdicts:
        is_info = each.check.severity is Severity.INFO
        assert each.outcome is (Outcome.WARN if is_info else Outcome.FAIL), each


@pytest.mark.timeout(120)
def test_driver_without_devices_is_not_judged() -> None:
    with stage_of(attrs.evolve(_BY_SWITCH["no-slices"], limits={"publish_seconds": 0.5})) as stage:
        for check in select(["DC03", "DF01", "DS03"]):
            with pytest.raises(Skipped):
                check.run(DriverRun(stage, (DRIVER,), "seed"))


@pytest.mark.timeout(300)
def test_driver_with_cdi_files_on_a_disk_passes() -> None:
    subject = SUBJECTS["persistent-cdi"]
    # It starts the driver twice, which takes long on a busy machine.
    patient = attrs.evolve(limits(subject), start_seconds=120.0, recover_seconds=120.0)
    report = run(
        attrs.evolve(driver(*subject.switches), resources=[DRIVER]),
        select(["DK12"]),
        limits=patient,
        settings=_SETTINGS,
        suite=DRIVERS,
    )
    [verdict] = report.verdicts
    assert verdict.outcome is Outcome.PASS, verdict.seen


@pytest.mark.timeout(120)
def test_rejected_slices_fail_on_a_stage_that_expects_no_devices() -> None:
    """Earlier stages had no devices, so the start does not wait, and the writes come later."""
    program = driver("too-many-devices", "late-slices")
    long = attrs.evolve(limits(), publish_seconds=600)
    stage = DriverStage(program, long, _SETTINGS, device_counts={DRIVER: 0})
    with contextlib.closing(stage):
        begun = DriverRun(stage, (DRIVER,), "start")
        begun.start()
        with pytest.raises(Skipped, match="needs 1 device to allocate"):
            begun.claims()
        for check in select(["DS01", "DS02"]):
            with pytest.raises(Failed, match="Too many: 130: must have at most 128 items"):
                check.run(DriverRun(stage, (DRIVER,), "seed"))
