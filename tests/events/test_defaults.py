"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import events
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(events) == {
        "Call.code": "OK",
    }
