"""Which switch of the breakable driver fails which checks of drivers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.conformance import Hook
from devicemanager.conformance.drivers import DriverLimits, DriverUnderTest
from tests.conformance.matrix import Case, Subject, case
from tests.paths import ROOT

DRIVER = "conformance.example.com"
PROGRAM = Path(__file__).with_name("breakable_driver.py")

_PREPARED_TWICE = "it prepares claims twice"
_RESTARTED = "its claims are of another process"
_BUSY = "the device stays in use"

CASES = (
    case("no-register", "DR01", start_seconds=3),
    case("changing-info", "DR02"),
    case("lists-unserved", "DR03"),
    case("gives-up", "DR04"),
    case(
        "slow-start",
        "DR05",
        base="late-slices",
        also="DK03 DK04 DK05",
        why="they also call it right after its restart",
        recover_seconds=3,
    ),
    case("needs-api", "DR06", away_seconds=20),
    case("refuses-reserved", "DC01"),
    case("odd-request", "DC02", also="DC14", why="they compare the names, too"),
    case(
        "ids-per-call",
        "DC03",
        also="DK02 DK03 DK04 DK08",
        why=_PREPARED_TWICE,
    ),
    case("counts", "DC04", also="DK05", why=_PREPARED_TWICE),
    case("unknown-fails", "DC05", also="DC06 DC20", why="the claim is not prepared"),
    case("unprepares-once", "DC06"),
    case("reads-claim", "DC07", also="DC08", why="it reads the claim"),
    case("asks-api", "DC08"),
    case("one-entry", "DC09", also="DF02", why="it prepares two claims in one call"),
    case("all-or-nothing", "DC10"),
    case("accepts-unknown", "DC11"),
    case("foreign-device", "DC12"),
    case("foreign-config", "DC13"),
    case("subrequest", "DC14"),
    case("shares-device", "DC15"),
    case("exits-on-config", "DC16"),
    case("prepares-missing", "DC17"),
    case("no-allocation", "DC18"),
    case("ignores-uid", "DC19"),
    case("commits-late", "DC20"),
    case("one-at-a-time", "DC21"),
    case("bad-status", "DC22"),
    case("refuses-admin", "DC23"),
    case(
        "no-cdi",
        "DF01",
        also="DC01 DC23 DF03 DF05 DK02 DK03 DK04 DK05 DK08 DK09 DK12 DN01 DN02",
        why="no CDI device can be resolved",
    ),
    case(
        "empty-edits",
        "DF02",
        also="DC01 DC23 DF01 DF03 DF05 DK02 DK03 DK04 DK05 DK08 DK09 DK12 DN01 DN02",
        why="a runtime ignores the files",
    ),
    case("one-file", "DF03", also="DC21 DC23", why="claims remove the files of others"),
    case("leaves-cdi", "DF04", also="DC04 DK05", why="they look for files, too"),
    case("no-rewrite", "DF05", "DK12"),
    case("registers-once", "DK01", also="DK02 DK07", why="they restart the kubelet, too",
         recover_seconds=3),
    case("ids-per-registration", "DK02", also="", why=""),
    case(
        "ids-per-process",
        "DK03",
        also="DK04 DK08",
        why=_RESTARTED,
    ),
    case("bind-once", "DK04", also="DK05", why="they kill it, too"),
    case("checkpoint-first", "DK05", also="DF05 DK12", why="it never writes a file again"),
    case("never-reclaims", "DK06", recover_seconds=2),
    case("no-recreate", "DK07", recover_seconds=2),
    case("same-sockets", "DK08"),
    case("removes-others", "DK08"),
    case("only-format-2", "DK09", "DK10"),
    case("format-2", "DK10"),
    case("exits-on-damage", "DK11"),
    case("no-slices", "DS01", publish_seconds=1),
    case("too-many-devices", "DS01", "DS02", publish_seconds=3),
    case("invalid-slice", "DS02", publish_seconds=3),
    case("twice-named", "DS03"),
    case("publishes-once", "DS04", also="DS07 DS12", why="the slices never change",
         repair_seconds=2),
    case(
        "names-per-process",
        "DS05",
        also="DR05 DK03 DK04 DK05 DK08",
        why="claims name devices of another process",
        publish_seconds=2,
    ),
    case("no-retry", "DS06", repair_seconds=3),
    case("ignores-watch-end", "DS07", repair_seconds=2),
    case("needs-node", "DS08", away_seconds=20),
    case("v1-only", "DS09", publish_seconds=3),
    case("own-domain", "DS10"),
    case("no-owner", "DS11"),
    case("ignores-broken", "DS12", refresh_seconds=1),
    case("late-health", "DH01", also="DH02 DH03 DH04 DH05", why="they wait for a report, too",
         health_seconds=1),
    case("partial-health", "DH02"),
    case("reports-once", "DH03", also="DH05", why="there is no second report", refresh_seconds=1,
         health_repeat_seconds=3),
    case("one-stream", "DH04", also="DH01 DH02 DH03 DH05", why="the kubelet has a stream"),
    case("hides-broken", "DH05", health_repeat_seconds=2),
    case("stubborn", "DL01", also="DL02 DL03", why="it does not exit", grace_seconds=2),
    case("leaves-socket", "DL02", also="DL03 DK08", why="they stop it, too"),
    case("late-handler", "DL03"),
    case("bad-metadata", "DL04"),
    case("no-nri", "DN01", "DN02", recover_seconds=2),
    case("refuses-containers", "DN01", also="DC01 DN02", why="they start containers, too"),
    case("moves-containers", "DN02"),
)  # fmt: skip

GOOD = ("status", "metadata")
"""Switches of the correct driver that make every check apply."""

SUBJECTS: Mapping[str, Subject] = {
    # Drivers without health, metadata and status.
    "plain": Subject(("no-health",), ("DR01", "DC01", "DC22", "DL04", "DH01")),
    # CDI files in a directory that survives a reboot. They need not be written again.
    "persistent-cdi": Subject(
        ("etc-cdi", "no-rewrite"), ("DC01", "DF01", "DF04", "DK12"), waived=("DF05",)
    ),
}
"""Drivers that must pass all checks, by their kind."""

QUICK: dict[str, Any] = {
    "away_seconds": 2.0,
    "settle_seconds": 0.4,
    "slow_api_seconds": 1.0,
    "early_stops": 2,
}
"""Limits for short waits and small counts."""

DEADLINES: dict[str, Any] = {
    "recover_seconds": 20.0,
    "repair_seconds": 20.0,
    "health_seconds": 5.0,
}
"""Short limits for programs with a bug: some checks wait for something that never happens. Good
programs get the usual limits."""


def limits(case: Case | Subject | None = None) -> DriverLimits:
    """Return short limits, with those of the case or subject."""
    deadlines = DEADLINES if isinstance(case, Case) else {}
    return DriverLimits(**(QUICK | deadlines | dict(case.limits if case else {})))


def broken(case: Case) -> DriverUnderTest:
    """Return the driver of a case. Its name is given, because it may not register."""
    return attrs.evolve(driver(case.switch, *case.base), resources=[DRIVER])


def driver(*switches: str) -> DriverUnderTest:
    """Return the breakable driver with these switches, with all hooks and options."""
    words = [word for switch in switches for word in ("--switch", switch)]
    env = {"PYTHONPATH": str(ROOT), "NRI_SOCKET": "{nri_socket}"}
    is_private = "etc-cdi" in switches
    if is_private:
        env["CDI_ROOT"] = "/etc/cdi"
    return DriverUnderTest(
        command=[sys.executable, PROGRAM, *words],
        previous=[sys.executable, str(PROGRAM)],
        private_root=is_private,
        reboot=True,
        nri=True,
        env=env,
        # The hooks write into the kubelet's directory, which has another path in a private root.
        hooks={} if is_private else HOOKS,
    )


def _path(values: Mapping[str, str]) -> Path:
    return Path(values["root"], "broken.txt")


HOOKS: Mapping[str, Hook] = {
    "break-device": lambda values: _path(values).write_text(values["id"]),
    "recover-device": lambda values: _path(values).unlink(missing_ok=True),
}
