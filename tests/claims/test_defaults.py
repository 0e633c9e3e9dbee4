"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import claims
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(claims) == {
        "Alternative.count": 1,
        "Dialect.is_1_37": True,
        "FakeDriver.profile": "device",
        "Features.consumable_capacity": True,
        "Limits.devices": 32,
        "Limits.first_fit": 2000,
        "Limits.total": 100_000,
        "Limits.explanation": 10_000,
        "Optional.has_value": True,
        "Profile.error_names_device": True,
        "Profile.limit_per_request": True,
        "Profile.keeps_step_format": True,
        "Profile.knows_alpha_fields": True,
        "Profile.writes_tolerations": True,
        "Setting.expected": "bool or the unknown type",
        "Setting.allows_back_quotes": True,
        "SimulatedHardware.gpu": 2,
        "SimulatedHardware.nic": 1,
        "SimulatedHardware.fpga": 2,
    }
