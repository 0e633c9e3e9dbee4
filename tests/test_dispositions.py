"""Signals are heard by what tests start, whatever the tests themselves were started with."""

import signal
import subprocess
import sys

import pytest

from tests.paths import ROOT

NUMBERS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def test_started_to_ignore_signals():
    """As in the background of a script and under nohup: the tests' own children hear them."""
    program = f"""
import signal, subprocess
for number in {[int(each) for each in NUMBERS]}:
    signal.signal(number, signal.SIG_IGN)
import tests.conftest
for number in {[int(each) for each in NUMBERS[1:]]}:
    signal.raise_signal(number)
print(subprocess.check_output(["grep", "SigIgn", "/proc/self/status"], text=True).split()[1])
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ignored, interrupted = done.stdout.split()
    assert not [each for each in NUMBERS if int(ignored, 16) & 1 << each - 1]
    assert interrupted == "interrupted"


@pytest.mark.parametrize("number", NUMBERS)
def test_this_session_hears_them(number):
    """In a worker as well, where the tests run in one."""
    assert signal.getsignal(number) != signal.SIG_IGN
