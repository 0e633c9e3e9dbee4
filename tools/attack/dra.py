"""Attack with DRA drivers: responses and health reports that are too large or wrong, drivers that
hang, come and go, or register too often.

Meanwhile, a good plugin registers. Pods with a device of this plugin and a claim of a good driver
are admitted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tools.attack.beside import beside
from tools.attack.drivers import (
    HostileDriver,
    answer,
    claim_entry,
    device,
    health,
)
from tools.attack.model import Hostile, Limits, Target
from tools.attack.plugins import LIMIT, cut, field, filled

_SECONDS = 8.0
_HANG_SECONDS = 30.0
"""Time of a call without a response. It must exceed the limit of an admission, also on a busy
machine."""
_PODS = 8
_FEW_PODS = 2
"""Number of pods with responses of 4 MiB. Without a limit, each of them uses a gigabyte."""
_MB = 1_000_000
_LARGE = Limits(registration=100.0, admission=600.0, memory=400.0, kept=150.0)
"""Limits for messages of 4 MiB, which must be decoded before they can be rejected."""


def _driver(target: Target, **options: Any) -> HostileDriver:
    return HostileDriver([target.registry / "hostile.sock"], **options)


# -- responses -------------------------------------------------------------------------


def _same(entry: Callable[[], bytes]) -> Callable[[bytes], bytes]:
    made = entry()
    return lambda request: answer(request, made)


def _unknown(request: bytes) -> bytes:
    return answer(request, device()) + claim_entry(_LONG, device())


_ROOM = LIMIT - 4096
_NAME = b"n" * _MB
_LONG = b"\x1b]0;x\x07\n" * 30_000
"""A text of 210 kB with control characters, which is within the limit of a response."""
_ANSWERS: Iterable[tuple[str, str, Callable[[], Callable[[bytes], bytes]]]] = (
    (
        "4mb-devices",
        "responses of 4 MiB of the shortest devices",
        partial(_same, lambda: filled(field(1, b""), _ROOM)),
    ),
    (
        "4mb-cdi",
        "responses of one device with 4 MiB of the shortest CDI ids",
        partial(_same, lambda: field(1, filled(field(4, b""), _ROOM))),
    ),
    (
        "4mb-control",
        "responses of one CDI id of 4 MiB of control characters",
        partial(_same, lambda: device(cdi=b"\1" * _ROOM)),
    ),
    (
        "names",
        "responses with names of 1 MB",
        partial(_same, lambda: device(_NAME, _NAME, _NAME)),
    ),
    (
        "errors",
        "responses with errors of 210 kB of control characters",
        partial(_same, lambda: field(2, _LONG)),
    ),
    ("unknown", "responses with an unknown uid of 210 kB", lambda: _unknown),
)


def _respond(target: Target, make: Callable[[], Callable[[bytes], bytes]], pods: int) -> None:
    with _driver(target, prepare=make()) as driver:
        driver.wait_for_preparations(pods)
        time.sleep(_SECONDS)


for _name, _about, _make in _ANSWERS:
    _pods = _FEW_PODS if _name.startswith("4mb") else _PODS
    beside(f"dra-answers-{_name}", _about, _LARGE, claims=True, pods=_pods)(
        partial(_respond, make=_make, pods=_pods)
    )


@beside("dra-hang", f"NodePrepareResources never returns to {_PODS} pods", claims=True, pods=_PODS)
def _hang(target: Target) -> None:
    never = threading.Event()

    def prepare(_: bytes) -> bytes:
        never.wait()
        return b""

    with _driver(target, prepare=prepare) as driver:
        driver.wait_for_preparations(1)
        time.sleep(_HANG_SECONDS)


# -- registrations ---------------------------------------------------------------------

_BAD = 1000
_FLAPS = 400
_LONGEST = 120.0


@beside(
    "dra-register-1000",
    f"one process registers {_BAD} drivers",
    Limits(registration=300.0, kept=100.0, threads=600, descriptors=_BAD + 600),
    claims=True,
)
def _register(target: Target) -> None:
    _register_all(target, names=(f"bad{number}.example.com" for number in itertools.count()))


@beside(
    "dra-instances-1000",
    f"one process registers {_BAD} instances of a driver",
    Limits(registration=300.0, kept=100.0, threads=600, descriptors=_BAD + 600),
    claims=True,
)
def _instances(target: Target) -> None:
    _register_all(target)


def _register_all(target: Target, **options: Any) -> None:
    service = target.root / "service.sock"
    paths = [target.registry / f"bad-{number}.sock" for number in range(_BAD)]
    # Each instance has its own path of the same socket.
    endpoints = (f"{target.root}{'/.' * number}/service.sock" for number in itertools.count())
    with HostileDriver([service, *paths], endpoints=endpoints, **options) as driver:
        driver.wait_for_notifications(_BAD)
        time.sleep(1)


@beside(
    "dra-flap", f"a driver comes and goes up to {_FLAPS} times", Limits(threads=200), claims=True
)
def _flap(target: Target) -> None:
    end = time.monotonic() + _LONGEST
    for number in range(_FLAPS):
        path = target.registry / f"flap-{number % 3}.sock"
        with HostileDriver([path]) as driver:
            # Only a driver that was registered can leave, and that takes long on a busy machine.
            driver.notified.wait(max(0.0, end - time.monotonic()))
        path.unlink(missing_ok=True)
        if time.monotonic() > end:
            return


# -- health ----------------------------------------------------------------------------


def _changes() -> Iterator[bytes]:
    for turn in itertools.count():
        yield health(b"p", b"d", 1 + turn % 2, b"%d" % turn)


def _most_devices() -> Iterator[bytes]:
    for turn in itertools.count():
        yield cut(health(b"%x" % turn, b"%x" % number) for number in range(LIMIT))


def _shortest_devices() -> Iterator[bytes]:
    return itertools.repeat(filled(field(1, b"")))


def _long_names() -> Iterator[bytes]:
    for turn in itertools.count():
        yield health(b"%d" % turn + _NAME, _NAME, 2, _NAME)


def _invalid() -> Iterator[bytes]:
    return itertools.repeat(b"\xff" * 1000)


_REPORTS: Iterable[tuple[str, str, Callable[[], Iterator[bytes]], Limits | None]] = (
    ("changes", "changes of a device's health as fast as possible", _changes, None),
    ("4mb", "health reports of 4 MiB, each with new devices", _most_devices, _LARGE),
    ("shortest", "health reports of 2 million devices without a name", _shortest_devices, _LARGE),
    ("names", "health reports with names and messages of 1 MB", _long_names, _LARGE),
    ("invalid", "health reports that are not protobuf", _invalid, None),
)


_LEAST = {"4mb": 8, "names": 200}
"""Numbers of reports that exceed the limit of memory if the kubelet stores all of them."""


def _report(target: Target, reports: Callable[[], Iterator[bytes]], least: int = 0) -> None:
    def limited() -> Iterator[bytes]:
        end = time.monotonic() + _SECONDS
        # On a busy machine, the same reports take more time.
        for number, report in enumerate(reports()):
            if number >= least and time.monotonic() > end:
                return
            yield report

    with _driver(target, reports=limited) as driver:
        # A kubelet that ends the stream after each report never lets the driver send them all.
        if not driver.sent.wait(_LONGEST if least else _SECONDS) and least:
            raise TimeoutError(f"the reports were not sent within {_LONGEST:g} s")
        time.sleep(1)


def _register_reports(name: str, about: str, hostile: Hostile, limits: Limits | None) -> None:
    beside(f"dra-health-{name}", about, limits, claims=True, pods=1)(hostile)


for _name, _about, _reports, _limits in _REPORTS:
    _hostile = partial(_report, reports=_reports, least=_LEAST.get(_name, 0))
    _register_reports(_name, _about, _hostile, _limits)
