"""Signals that stop a command."""

import signal
from collections.abc import Iterator

import pytest

from devicemanager.cli import stopping
from devicemanager.cli.stopping import Stopped, StopSignals


@pytest.fixture
def ended() -> Iterator[list[int]]:
    """Record signals with their former effect, instead of ending this process."""
    numbers: list[int] = []
    former = {
        number: signal.signal(number, lambda number, _: numbers.append(number))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    yield numbers
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_repeated_signal_counts_once_and_later_one_has_its_former_effect(
    number: signal.Signals, ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like ``timeout``: to the program, then to its process group."""
    now = 100.0
    monkeypatch.setattr(stopping, "monotonic", lambda: now)
    with StopSignals() as signals:
        signal.raise_signal(number)
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
        assert signals.came
        assert ended == []
        now += 0.5
        signal.raise_signal(number)
        assert ended == [number]


def test_second_sighup_has_no_effect(ended: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stopping, "monotonic", lambda: now)
    with StopSignals():
        signal.raise_signal(signal.SIGHUP)
        now += 1
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)  # also after the shutdown
    assert ended == []


def test_signal_interrupts_a_wait_once(ended: list[int]) -> None:
    with StopSignals() as signals:
        with pytest.raises(Stopped), signals.interruptible():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert ended == [signal.SIGINT]
