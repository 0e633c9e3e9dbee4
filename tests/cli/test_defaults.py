"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import cli
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(cli) == {}
