"""The lines of a program's output that say why it exited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.conformance.checks import registration
from devicemanager.conformance.crash import without_registers, without_stacks
from devicemanager.conformance.observations import Timeline
from devicemanager.conformance.outcomes import Warned
from tests.conformance.test_check_run import Run


class _Aborted:
    """Process with a dump that ends in many registers."""

    def output(self) -> list[str]:
        return ["main.main()", *[f"r{number:<6}0x1" for number in range(60)]]


FATAL = "F1128 10:00:00.000000 7 main.go:16] cannot listen"
DUMP = f"""\
I1128 10:00:00.000000 7 main.go:9] starting
{FATAL}
SIGABRT: abort
PC=0x40de6e m=0 sigcode=0

goroutine 1 gp=0x1 m=0 mp=0x2 [running]:
main.main()
\t/src/main.go:16 +0x137 fp=0xa sp=0xb pc=0x1
created by main.run in goroutine 1
\t/src/main.go:12 +0x15b

rax    0xfffffffffffffffc
r8     0x0
rip    0x40de6e
rflags 0x246
gs     0x0
"""
WRAPPED = """\
E1128 10:00:00.000000 7 manager.go:146] Failed to serve: too many open files
example.com/plugin.(*server).Serve
\t/src/server.go:208
runtime.goexit
\t/go/src/runtime/asm_amd64.s:1771
"""


@pytest.mark.parametrize(
    ("output", "last"),
    [
        (DUMP, FATAL),
        (WRAPPED, WRAPPED.splitlines()[0]),
        ("Traceback (most recent call last):\n  File 'a'\nOSError: no\n", "OSError: no"),
        ("gpu 0x10 is gone\n", "gpu 0x10 is gone"),
    ],
)
def test_last_line_is_not_part_of_a_stack(output: str, last: str) -> None:
    assert without_stacks(output.splitlines())[-1] == last


def test_registers_are_left_out_of_the_output_of_a_check() -> None:
    """Frames of goroutines remain. A line that only begins like a register remains, too."""
    lines = without_registers([*DUMP.splitlines(), "lr     0x1", "rack 0x10 is gone"])
    assert lines == [*DUMP.splitlines()[:-6], "", "rack 0x10 is gone"]
    kubelet: Any = SimpleNamespace(mark=lambda: None, clock=SimpleNamespace(time=float))
    processes: list[Any] = []
    timeline = Timeline(kubelet, processes)
    processes.append(_Aborted())
    assert timeline.output() == ("main.main()",)


def test_output_may_have_no_other_line() -> None:
    assert without_stacks([]) == []
    assert without_stacks(["goroutine 1 [running]:", "main.main()", "\t/src/main.go:16"]) == []


def test_crash_after_a_rejection_is_a_warning() -> None:
    run: Any = Run()
    run.plugin.process = SimpleNamespace(
        exit_status=2, output=lambda: ["panic: close of closed channel"]
    )
    with pytest.raises(Warned, match="the plugin crashed after a rejected Register call: exit"):
        registration._exited_after_rejection(run)
    run.plugin.process.output = list
    assert registration._exited_after_rejection(run) == (
        "exits with an error, which is accepted: exit status 1"
    )
