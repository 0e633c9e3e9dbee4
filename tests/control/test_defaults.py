"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import control
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(control) == {
        "ServedApi.timeout": 60.0,
        "Transport.start": "start the kubelet with `devicemanager run --control`",
    }
