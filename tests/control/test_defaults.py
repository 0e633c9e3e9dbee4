"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import control
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(control) == {
        "ServedApi.timeout": 60.0,
        "Transport.start": "start the kubelet with `devicemanager run --control`",
        "Allocate.timeout": 10.0,
        "CallWait.timeout": 10.0,
        "EventWait.timeout": 10.0,
        "Eviction.resource": "memory",
        "FailPrepare.times": -1,
        "FailUnprepare.fails": True,
        "GetOptions.timeout": 10.0,
        "GetPreferred.timeout": 10.0,
        "NotReady.message": "set to not ready by a fault",
        "PreStart.timeout": 10.0,
        "Problem.type": "about:blank",
        "ResourceWait.timeout": 10.0,
        "Silence.silent": True,
        "ZeroCapacity.zero": True,
    }
