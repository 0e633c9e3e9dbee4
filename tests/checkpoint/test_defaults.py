"""Defaults of values and settings that are not empty."""

from __future__ import annotations

import checkpoint
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(checkpoint) == {
        "Inspection.is_text": True,
        "Inspection.share_ids": True,
    }
