"""Warnings at a limited rate, and texts that fit into them."""

import pytest

from devicemanager.client.rate_limited_warning import RateLimitedWarning, truncate


@pytest.mark.parametrize(("options", "every"), [({}, 60.0), ({"every": 2.0}, 2.0)])
def test_one_warning_per_interval_is_shown(options, every):
    """A dropped warning does not delay the next one."""
    lines, now = [], 0.0
    warn = RateLimitedWarning(lines.append, monotonic=lambda: now, **options)
    shown = [-5.0, every - 5.0, 2 * every - 5.0]
    for now in (shown[0], shown[1] - 0.1, shown[1], shown[1] + 1.9, shown[2] - 0.1, shown[2]):
        warn(f"at {now}")
    assert lines == [f"at {each}" for each in shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("", ""), ("a" * 60, "a" * 60), ("a" * 61, "a" * 60 + "…"), ("é" * 99, "é" * 60 + "…")],
)
def test_long_text_is_truncated(text, shown):
    assert truncate(text) == shown
