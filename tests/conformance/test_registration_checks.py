"""Decisions of the registration checks that need no plugin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from devicemanager.conformance.checks.registration import _is_dialed
from devicemanager.events.calls.call import Call


@pytest.mark.parametrize(
    ("changed", "is_dialed"),
    [
        ({}, True),
        ({"version": "v1"}, False),
        ({"resource_name": "gpu"}, False),
        ({"endpoint": "plugins/gpu.sock"}, False),
    ],
)
def test_kubelet_dials_after_a_valid_request(changed: dict[str, Any], is_dialed: bool) -> None:
    request = {"version": "v1beta1", "resource_name": "vendor.com/gpu", "endpoint": "gpu.sock"}
    assert _is_dialed(cast(Call, SimpleNamespace(request=request | changed))) is is_dialed
