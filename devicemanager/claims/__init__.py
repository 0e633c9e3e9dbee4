"""Structured claims: drivers publish pools, administrators define classes, users claim devices."""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.claims.drivers import ClaimDriver, FakeDriver
    from devicemanager.claims.errors import (
        ClaimsError,
        ClaimsUnavailable,
        DoesNotFit,
        InvalidObject,
        TryAgain,
    )
    from devicemanager.claims.explanation import Explanation
    from devicemanager.claims.simulated import SimulatedHardware, simulated_classes

__all__ = [
    "ClaimDriver",
    "ClaimsError",
    "ClaimsUnavailable",
    "DoesNotFit",
    "Explanation",
    "FakeDriver",
    "InvalidObject",
    "SimulatedHardware",
    "TryAgain",
    "simulated_classes",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ClaimDriver": "drivers",
        "ClaimsError": "errors",
        "ClaimsUnavailable": "errors",
        "DoesNotFit": "errors",
        "Explanation": "explanation",
        "FakeDriver": "drivers",
        "InvalidObject": "errors",
        "SimulatedHardware": "simulated",
        "TryAgain": "errors",
        "simulated_classes": "simulated",
    },
)
