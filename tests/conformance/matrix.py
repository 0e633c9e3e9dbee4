"""Which switch of the breakable plugin fails which checks of the suite."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from devicemanager.conformance import Hook, Limits, PluginUnderTest
from tests.paths import ROOT

RESOURCE = "conformance.example.com/device"
PLUGIN = Path(__file__).with_name("breakable.py")


@attrs.frozen
class Case:
    """A switch, and the checks that must fail with it."""

    switch: str
    fails: tuple[str, ...]
    """Checks that the switch is made for: they fail or warn."""
    also: tuple[str, ...] = ()
    """Other checks that cannot pass with it; ``why`` gives the reason."""
    may: tuple[str, ...] = ()
    """Checks that fail in some runs, depending on the time of a thread or a restart."""
    why: str = ""
    base: tuple[str, ...] = ()
    """Switches without which the checks would not notice the switch."""
    limits: Mapping[str, float] = attrs.field(factory=dict)


def case(
    switch: str,
    *fails: str,
    also: str = "",
    may: str = "",
    why: str = "",
    base: str = "",
    **limits: float,
) -> Case:
    return Case(
        switch,
        fails,
        tuple(also.split()),
        tuple(may.split()),
        why,
        tuple(base.split()),
        limits,
    )


CASES = (
    case("no-register", "R01", start_seconds=3),
    case("register-first", "R02", start_seconds=5, also="R01", why="it never registers"),
    case("endpoint-path", "R03", start_seconds=5, also="R01", why="the kubelet rejects it"),
    case("bad-name", "R04", start_seconds=5, also="R01", why="the kubelet rejects it"),
    case("long-socket", "R05", start_seconds=5, also="R01", why="it cannot serve"),
    case("hot-loop", "R06"),
    case("gives-up", "R06", recover_seconds=2),
    case("impatient", "R07", register_delay_seconds=3),
    case("exit-without-kubelet", "R08", away_seconds=4),
    case("reregister", "R09"),
    case("all-or-nothing", "R10", start_seconds=5),
    case("deprecation", "R11", start_seconds=5),
    case("registry-type", "R12"),
    case("options-differ", "R13"),
    case(
        "never-back",
        "K01",
        recover_seconds=6,
    ),
    case("registers-twice", "K02"),
    case(
        "third-fails",
        "K02",
        recover_seconds=6,
        may="K03",
        why="K03 restarts more than twice, and can begin before K02 has failed",
    ),
    case("deaf", "K03", recover_seconds=6, also="K02", why="it restarts in quick succession"),
    case("spin-when-away", "K04"),
    case(
        "exit-on-cancel",
        "K05",
        allocations=4,
        changes=10,
        parallel_rounds=2,
        single_devices=2,
    ),
    case(
        "ignores-own",
        "K06",
        recover_seconds=6,
        base="ignores-stream",
        also="K08",
        why="it watches only kubelet.sock",
    ),
    case(
        "ignores-kubelet",
        "K07",
        recover_seconds=6,
        base="ignores-stream",
        also="K08",
        why="it does not notice the end of its stream",
    ),
    case("ignores-stream", "K08", recover_seconds=6),
    case(
        "stale-handlers",
        "K09",
        start_seconds=5,
        refresh_seconds=3,
        stream_end_seconds=3,
        recover_seconds=6,
        may="W15 L04",
        why="stale handlers are threads, and the two checks count them at different times",
    ),
    case("no-unlink", "K10", start_seconds=5),
    case("unlink-by-name", "K11", also="K12", why="the name is the same for all instances"),
    case("fixed-socket", "K12"),
    case("random-ids", "K13", refresh_seconds=3),
    case("mount-removed", "K14"),
    case(
        "exit-0-on-loss",
        "K15",
        also="K01",
        why="it exits with the kubelet, and is not started again",
    ),
    case("late-list", "W01", first_list_warn_seconds=0.15),
    case(
        "short-stream",
        "W02",
        refresh_seconds=3,
        recover_seconds=6,
        base="ignores-stream",
        also="K08 K11",
        may="W07 W11",
        why="it does not notice the end of its stream. If that has ended before, a broken device "
        "is not reported, and W11 is skipped",
    ),
    case("twice-listed", "W03"),
    case("lowercase-health", "W04"),
    case("long-ids", "W05"),
    case("delta", "W06"),
    case("no-break", "W07", refresh_seconds=3),
    case("no-heal", "W08", refresh_seconds=3),
    case("drop-broken", "W09"),
    case("large-list", "W10", list_warn_bytes=100_000),
    case(
        "one-stream",
        "W11",
        refresh_seconds=3,
        recover_seconds=6,
        base="ignores-stream",
        also="K08",
        why="it does not notice the end of its stream",
    ),
    case("first-stream-only", "W11", start_seconds=5),
    case("chatty", "W12"),
    case(
        "queue-memory",
        "W13",
        stream_end_seconds=3,
        also="L04 L06",
        why="each list stays in memory",
    ),
    case("waits-for-readers", "W13", refresh_seconds=3),
    case("no-empty", "W14"),
    case("leak-handlers", "W15", stream_end_seconds=3),
    case("numa-unknown", "T01"),
    case("empty-topology", "T02"),
    case("numa-moves", "T03"),
    case("slow-options", "O01", options_seconds=0.1),
    case("no-preference", "O02"),
    case("no-pre-start", "O03"),
    case("exit-on-odd-call", "O04", base="no-calls"),
    case("per-device", "A01"),
    case("accept-unknown", "A02"),
    case("accept-broken", "A03"),
    case("accept-partly", "A04"),
    case("order-matters", "A05"),
    case("no-library", "A05"),
    case("changes", "A06"),
    case("slots", "A07", allocations=200, also="A08", why="it allocates as often"),
    case("deadlock", "A08", allocate_seconds=3),
    case(
        "slow-allocate",
        "A09",
        allocate_warn_seconds=0.08,
        allocations=2,
        parallel_rounds=1,
        single_devices=2,
    ),
    case("relative-path", "A10"),
    case("two-hosts", "A10", also="A18", why="all devices share two nodes"),
    case("no-device", "A11"),
    case("no-mount", "A12"),
    case("last-only", "A13"),
    case("bad-cdi", "A14"),
    case("bad-annotation", "A15"),
    case("same-variable", "A16"),
    case("exit-on-empty", "A17"),
    case("shared-node", "A18"),
    case("late-allocatable", "A19"),
    case("ignores-must", "P01"),
    case("no-edges", "P02"),
    case("needs-all", "P03"),
    case("exit-on-infeasible", "P04"),
    case("random-preference", "P05"),
    case(
        "slow-preference",
        "P05",
        preferred_seconds=0.1,
        random_preferences=3,
        same_preferences=2,
    ),
    case("one-preference", "P06"),
    case("slow-pre-start", "S01", pre_start_seconds=1),
    case("prepare-once", "S02"),
    case("prepare-needs-allocate", "S03"),
    case("prepare-unknown", "S04"),
    case("stubborn", "L01", stop_seconds=2),
    case("leaves-socket", "L02"),
    case("removes-others", "L03"),
    case("leak-descriptors", "L04", restarts=5, stream_end_seconds=3),
    case("leaky-idle", "L05", also="K04", why="it is as busy without a kubelet"),
    case("leak-allocations", "L06", allocations=300),
    case("two-watches", "L07"),
    case("needs-inotify", "L07", start_seconds=5),
    case("answers-anything", "L08"),
    case("silent", "L11"),
    case("panics", "L11", also="R08", why="without a plugin directory, it panics, too"),
)

_OF_TWO = ("same-variable", "all-or-nothing")
"""Switches with which the plugin has a second resource."""

NOTHING_FAILS = ("L09", "L10")
"""Checks that only report."""

QUICK: dict[str, Any] = {
    "idle_seconds": 2.0,
    "away_seconds": 1.0,
    "settle_seconds": 0.4,
    "resend_seconds": 2.0,
    "register_window_seconds": 2.0,
    "register_delay_seconds": 1.5,
    "restarts": 5,
    "allocations": 200,
    "idle_cpu_share": 0.03,
}
"""Limits for short waits and small counts."""

DEADLINES: dict[str, Any] = {
    "recover_seconds": 20.0,
}
"""Short limits for programs with a bug: some checks wait for something that never happens. Good
programs get the usual limits."""


def limits(case: Case | Subject | None = None) -> Limits:
    """Return short limits, with those of the case or subject."""
    deadlines = DEADLINES if isinstance(case, Case) else {}
    return Limits(**(QUICK | deadlines | dict(case.limits if case else {})))


def broken(case: Case) -> PluginUnderTest:
    """Return the plugin of a case. Its resources are named because it may register none."""
    resources = [RESOURCE, f"{RESOURCE}-2"] if case.switch in _OF_TWO else [RESOURCE]
    return attrs.evolve(plugin(case.switch, *case.base), resources=resources)


def plugin(*switches: str) -> PluginUnderTest:
    """Return the breakable plugin with these switches and with all hooks."""
    words = [word for switch in switches for word in ("--switch", switch)]
    return PluginUnderTest(
        command=[sys.executable, PLUGIN, "--dir", "{plugin_dir}", *words],
        env={"PYTHONPATH": str(ROOT)},
        hooks=HOOKS,
    )


def _lines(values: Mapping[str, str]) -> dict[str, str]:
    path = Path(values["root"], "devices.txt")
    if not path.exists():
        return {f"device-{number}": "Healthy" for number in range(4)}
    return dict(line.split() for line in path.read_text().splitlines())


def _write(values: Mapping[str, str], health: Mapping[str, str]) -> None:
    path = Path(values["root"], "devices.txt")
    other = path.with_suffix(".new")
    other.write_text("".join(f"{id_} {each}\n" for id_, each in health.items()))
    other.rename(path)
    os.kill(int(values["pid"]), signal.SIGUSR1)


def _break(values: Mapping[str, str]) -> None:
    _write(values, _lines(values) | {values["id"]: "Unhealthy"})


def _recover(values: Mapping[str, str]) -> None:
    _write(values, _lines(values) | {values["id"]: "Healthy"})


def _add(values: Mapping[str, str]) -> None:
    health = _lines(values)
    _write(values, health | {f"device-{len(health) + 10}": "Healthy"})


def _remove(values: Mapping[str, str]) -> None:
    _write(values, {id_: each for id_, each in _lines(values).items() if id_ != values["id"]})


HOOKS: Mapping[str, Hook] = {
    "break-device": _break,
    "recover-device": _recover,
    "add-device": _add,
    "remove-device": _remove,
}
GOOD = ("numa", "devices", "cdi", "mount", "registry", "two")
"""Switches of the correct plugin that make every check apply."""


@attrs.frozen
class Subject:
    """A correct plugin of a kind that the suite has judged wrongly before."""

    switches: tuple[str, ...]
    checks: tuple[str, ...]
    """Checks that are run in every test; ``make conformance`` runs all."""
    waived: tuple[str, ...] = ()
    """Checks that fail or warn on purpose."""
    limits: Mapping[str, float] = attrs.field(factory=dict)
    restart: Literal["never", "always"] = "never"


SUBJECTS: Mapping[str, Subject] = {
    # Python: each handler occupies a thread of a pool until it notices the end of its stream.
    "thread pool": Subject((*GOOD, "slow-handlers"), ("W15",)),
    "empty first list": Subject((*GOOD, "empty-first"), ("R01", "K01", "K10", "K13", "A01")),
    # Two IDs are on one card: they have one device node, and they fail together.
    "shared devices": Subject(("shared-cards",), ("W06", "W08", "A05", "A10", "A18"), ("A18",)),
    # All IDs are slots of one device, such as /dev/fuse.
    "slots of one device": Subject(("shared-node",), ("A05", "A10", "A18"), ("A18",)),
    # Its first list is later than the response to Register, for a reason of its own.
    # It exits with the kubelet, and its DaemonSet starts it again, each time later.
    "exits with the kubelet": Subject(
        ("exit-1-on-loss",), ("K01", "K02"), limits={"restarts": 8}, restart="always"
    ),
    "late first list": Subject(
        ("very-late-list",), ("R07", "W01"), limits={"register_delay_seconds": 0.5}
    ),
    "three resources": Subject(
        (*GOOD, "three"), ("R01", "W15", "W06", "A01", "A05", "A10", "A16", "P01", "S01")
    ),
    # A variable of its own for each device, and one that has only the last device.
    "variable names": Subject(("last-only", "variable-names"), ("A13",)),
    "slow poll": Subject((*GOOD, "polls"), ("W08", "L06"), limits={"series_seconds": 3.0}),
    # It registers again when any stream ends, and the kubelet keeps its earlier connections.
    "re-registers": Subject(("any-stream", "keeps-server"), ("W15",)),
    # It sets up its watches and signal handlers only after its registration, as many plugins do.
    "late set-up": Subject(
        (*GOOD, "late-setup"), ("K01", "K06", "K07", "K08", "L01", "L02", "L07", "W07", "W14")
    ),
    # It also restarts its server, so that a stream opened at that moment is lost.
    "restarts its server": Subject(("any-stream",), ("W11", "W15"), ("W11",)),
}
"""Plugins that must pass all checks, by their kind."""
