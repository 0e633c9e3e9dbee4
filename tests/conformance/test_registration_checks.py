"""Decisions of the registration checks that need no plugin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from devicemanager.conformance.checks import registration
from devicemanager.conformance.checks.registration import _is_dialed
from devicemanager.conformance.outcomes import Failed
from devicemanager.events.calls.call import Call
from tests.conformance.test_check_run import Run


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


def test_r08_names_the_state_in_which_a_silent_plugin_was_started() -> None:
    run: Any = Run()
    run.plugin.process = SimpleNamespace(exit_status=None)
    with pytest.raises(Failed) as raised:
        registration._start_before_the_kubelet(run, "no directory")
    text = "the plugin was started with no directory, and did not register within 0 s after the "
    assert str(raised.value) == text + "kubelet's start"
