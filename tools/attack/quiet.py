"""Measure the times of a kubelet that is not attacked. Limits of attacks are multiples of these
times.

A limit in seconds would fail on a slow or busy machine. The times are measured shortly before each
attack, so a slow machine has higher limits.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

from tools.attack.model import Quiet, Target
from tools.attack.running import running
from tools.harness.plugin import RESOURCE, plugin_process
from tools.harness.process import HelperProcess, RequestFailed, short_directory

_ROUNDS: Final = 5
_DEVICES: Final = 8
_TIMEOUT: Final = 90.0


def measure() -> Quiet:
    """Measure a start of the command, and registrations and admissions of a good plugin.

    Returns the times that ``Quiet.steady`` makes of the measured ones. Raises RequestFailed if the
    command does not start.
    """
    with short_directory() as root, running(root, "-o", "json") as command:
        start = command.until(command.is_ready, _TIMEOUT)
        for _ in command.end():
            pass  # only attacks judge how the command exits
        stop = _TIMEOUT if command.stop is None else command.stop
    if start is None:
        raise RequestFailed(f"without an attack, the kubelet was not ready within {_TIMEOUT:g} s")
    with (
        short_directory() as root,
        HelperProcess("tools.attack.node", root, "{}") as node,
        plugin_process(Target(root).plugin_dir, _DEVICES) as good,
    ):

        def register() -> float:
            seconds = good.ask("register", timeout=_TIMEOUT).seconds
            node.ask("wait", RESOURCE, _DEVICES, _TIMEOUT, timeout=_TIMEOUT)
            return seconds

        numbers = iter(range(_DEVICES))

        def admit() -> float:
            return node.ask("admit", f"quiet-{next(numbers)}", RESOURCE, 1).seconds

        return Quiet(start, stop, _median(register), _median(admit)).steady()


def _median(act: Callable[[], float]) -> float:
    return median([act() for _ in range(_ROUNDS)])
