"""Conformance checks of Go plugins: a conformant one, and two with bugs of real frameworks."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from devicemanager.conformance import Outcome, PluginUnderTest, run, select
from devicemanager.kubelet.settings import Settings
from tests.conformance.matrix import HOOKS, limits

SETTINGS = Settings(durability="process")
RESOURCE = "conformance.example.com/device"


def failed(subject: PluginUnderTest, *ids: str, **changes: float) -> dict[str, str]:
    """Run the checks ``ids``; return what was observed in those that did not pass."""
    report = run(
        subject, select(ids), limits=attrs.evolve(limits(), **changes), settings=SETTINGS, jobs=4
    )
    bad = report.of(Outcome.FAIL, Outcome.WARN, Outcome.ERROR)
    return {each.check.id: each.seen for each in bad}


def conformant(go_bin: Path, *options: str) -> PluginUnderTest:
    command = [go_bin / "conformant", "-dir", "{plugin_dir}", *options]
    return PluginUnderTest(command=command, hooks=HOOKS, resources=[RESOURCE])


def test_conformant_plugin_passes(go_bin: Path) -> None:
    subject = conformant(go_bin)
    assert (
        failed(subject, "R01", "R06", "K01", "K03", "K08", "K09", "K11", "W15", "A05", "P01") == {}
    )


def test_handler_that_ignores_end_of_its_stream_fails(go_bin: Path) -> None:
    found = failed(conformant(go_bin, "-deaf"), "K09", "W15", refresh_seconds=2)
    assert found.keys() == {"K09", "W15"}
    assert "ListAndWatch handlers did not return" in found["W15"]


@pytest.mark.timeout(240)
def test_device_plugin_manager_fails_known_checks(dpm_plugin: Path, at_node_paths: object) -> None:
    """dpm has a hard-coded plugin directory, so it runs at the paths of a node."""
    # The plugin exits when its stdin is closed, so an open pipe keeps it running.
    subject = PluginUnderTest(
        command=["sh", "-c", f"exec tail -f /dev/null | exec {dpm_plugin}"],
        at_node_paths=True,
        resources=["color.example.com/red"],
    )
    found = failed(
        subject, "R01", "K01", "L02", "L04", "K06", "K08",
        recover_seconds=4, restarts=5, stream_end_seconds=2,
    )  # fmt: skip
    assert found.keys() == {"L02", "L04", "K06", "K08"}
    assert "red" in found["L02"]
