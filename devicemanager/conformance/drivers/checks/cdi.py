"""Checks of family DF: the CDI files of prepared claims."""

from __future__ import annotations

from devicemanager.conformance.drivers.described import driver_check
from devicemanager.conformance.drivers.run import DriverRun, cdi_ids
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.core.printable import counted


@driver_check
def df01(run: DriverRun) -> str:
    [claim] = run.claims()
    with run.prepared(claim) as [entry]:
        ids = cdi_ids(entry)
        if not ids:
            raise Skipped("the response has no CDI devices")
        run.check_resolved(entry)
    return ", ".join(ids)


@driver_check
def df02(run: DriverRun) -> str:
    claims = run.claims(2)
    with run.prepared(*claims):
        files = run.cdi.files()
        if errors := run.cdi.errors():
            raise Failed(errors[0])
    if not files:
        raise Skipped("the driver has no CDI files")
    return counted(len(files), "file")


@driver_check
def df03(run: DriverRun) -> None:
    one, two = run.claims(2, least=2)
    [first] = run.prepare(one)
    [second] = run.prepare(two)
    run.check_resolved(first, " after another claim was prepared")
    run.unprepare(two)
    run.check_resolved(first, " after another claim was unprepared")
    run.unprepare(one)
    # Skipped only here, so that the claims of a driver without CDI devices are unprepared, too.
    if not cdi_ids(first) and not cdi_ids(second):
        raise Skipped("the responses have no CDI devices")


@driver_check
def df04(run: DriverRun) -> None:
    # CDI devices that all claims share may stay.
    before = set(run.cdi.registry().devices)
    [claim] = run.claims()
    with run.prepared(claim) as [entry]:
        new = {*cdi_ids(entry)} - before
    if not new:
        raise Skipped("NodePrepareResources adds no CDI devices")
    if left := sorted(new & run.cdi.registry().devices.keys()):
        raise Failed(f"CDI device {left[0]} still exists after NodeUnprepareResources")


@driver_check
def df05(run: DriverRun) -> None:
    [claim] = run.claims()
    [entry] = run.prepare(claim)
    if not cdi_ids(entry):
        run.unprepare(claim)
        raise Skipped("the response has no CDI devices")
    run.step("remove all CDI files")
    run.cdi.remove_files()
    [again] = run.prepare(claim)
    run.check_resolved(again, " after the files were removed and the claim was prepared again")
    run.unprepare(claim)
