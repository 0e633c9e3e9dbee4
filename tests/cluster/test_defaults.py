"""Defaults of values and settings that are not empty."""

from __future__ import annotations

from devicemanager import cluster
from tests.helpers import own_defaults


def test_defaults_are_these_or_empty() -> None:
    assert own_defaults(cluster) == {
        "ContainerBehaviour.exit_code_on_delete": 143,
        "NodeOptions.pod_cidr": "198.18.0.0/15",
        "NodeOptions.shard": "0",
        "NodeOptions.on_deleted": "leave",
        "NodeOptions.status_interval": 10.0,
        "NodeOptions.report_interval": 300.0,
        "Numbering.step": 1,
    }
