"""Defaults of values and settings that are not empty."""

from __future__ import annotations

import podresources
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(podresources) == {
        "Method.exists": True,
        "Pod.active": True,
        "Profile.has_get_allocatable": True,
        "Profile.has_get": True,
        "Profile.get_enabled": True,
        "Profile.list_inactive": True,
        "Profile.get_inactive": True,
        "Profile.memory": True,
        "Profile.share_id": True,
        "Profile.dynamic_resources": True,
        "Profile.claim_devices": True,
        "Profile.sidecars": True,
    }
