"""The kubelet's backoff before it restarts a container."""

from __future__ import annotations

import pytest

from devicemanager.kubelet.pods.container_lifecycle import BackOff, go_seconds


def test_waits_double_up_to_five_minutes() -> None:
    back_off: BackOff[str] = BackOff()
    now, waits = 0.0, []
    for _ in range(8):
        waits.append(back_off.wait("a", now))
        back_off.starts("a", now, now + waits[-1])
        now += waits[-1] + 1.0
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert back_off.wait("b", now) == 0
    back_off.forget("a")
    assert back_off.wait("a", now) == 0


@pytest.mark.parametrize(("ran", "waits"), [(600.0, [10, 20]), (600.5, [0, 10])])
def test_backoff_resets_after_ten_minutes(ran: float, waits: list[float]) -> None:
    back_off: BackOff[str] = BackOff()
    back_off.starts("a", 0.0, 100.0)
    ended = 100.0 + ran
    found = [back_off.wait("a", ended)]
    back_off.starts("a", ended, ended + found[0])
    assert [*found, back_off.wait("a", ended + 11)] == waits


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_durations_are_formatted_as_in_go(seconds: float, text: str) -> None:
    assert go_seconds(seconds) == text
