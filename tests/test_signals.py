"""Processes that tests start react to signals, even if the session ignored them at its start."""

import signal
import subprocess
import sys

import pytest

from tests.paths import ROOT

SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def test_ignored_signals_have_effect_again():
    """A script's background command and nohup start the session with ignored signals."""
    program = f"""
import signal, subprocess
for number in {[int(each) for each in SIGNALS]}:
    signal.signal(number, signal.SIG_IGN)
import tests.conftest
for number in {[int(each) for each in SIGNALS[1:]]}:
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
    assert not [each for each in SIGNALS if int(ignored, 16) & 1 << each - 1]
    assert interrupted == "interrupted"


@pytest.mark.parametrize("number", SIGNALS)
def test_session_ignores_no_signal(number):
    """Also in a worker of pytest-xdist."""
    assert signal.getsignal(number) != signal.SIG_IGN
