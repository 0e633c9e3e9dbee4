"""docs/http.md and its dashboard describe what exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from devicemanager import MockKubelet
from devicemanager.kubelet.pod_resources import api_profile
from devicemanager.observe.metrics import families
from devicemanager.observe.metrics.tally import Admitted, Allocated, Registered, Tally
from devicemanager.observe.web.server import DEFAULT_ADDRESS
from podresources.counters import PREFIX
from tests.paths import ROOT
from tools import dashboard

PAGE = ROOT / "docs" / "http.md"


OF_PODS_API = [
    "kubelet_pod_requests_total",
    "kubelet_pod_requests_list_total",
    "kubelet_pod_requests_get_total",
    "kubelet_pod_requests_watch_total",
    "kubelet_pod_watch_events_dropped_total",
]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_documented_commands_work(served):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    ran = 0
    for line in lines:
        words = [word.replace(DEFAULT_ADDRESS, served.address) for word in shlex.split(line)]
        match words:
            case ["curl", *_]:
                ran += 1
                assert subprocess.run(words, check=True, capture_output=True).stdout, line
            case ["devicemanager", "run", *_]:
                pass  # tests/test_documentation.py parses it
            case _:
                raise AssertionError(f"nothing runs {line!r}")
    assert ran == 6


def test_documented_scrape_target_is_the_default_address():
    (block,) = blocks("yaml")
    (job,) = yaml.safe_load(block)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [DEFAULT_ADDRESS]}]


def test_documented_paths_exist(get):
    named = set(re.findall(r"`(/[a-z/]+)`", PAGE.read_text())) - {"/stats", "/logs"}
    assert {"/healthz", "/pods", "/metrics", "/configz"} <= named
    missing = {path for path in named if get(path).status == 404}
    assert missing == {"/metrics/cadvisor"}


# -- metrics and the dashboard ----------------------------------------------------------


def named(text):
    return set(re.findall(r"\b(?:kubelet|devicemanager)_[a-z_]+[a-z]\b", text))


@pytest.fixture
def existing(tmp_path):
    """Names of all metrics of the default version."""
    kubelet = MockKubelet(tmp_path / "r")
    profile = api_profile(kubelet.settings)
    tally = Tally(aligns=True, guarantees=True, per_pod=False)
    for observation in (Registered("a/b"), Allocated("a/b", 1), Admitted(1, 0, "Other")):
        tally.add(observation)
    names = kubelet.settings.behaviour.admission_metrics
    calls = [f"{kind}_{call}" for call in profile.counted for kind in ("requests", "errors")]
    collected = [
        *families.of_plugins(tally),
        *families.of_admissions(tally, names),
        *families.of_pod_resources({(f"{PREFIX}_{each}", "v1"): 1 for each in calls}),
        *families.of_pod_resources({(f"{PREFIX}_requests_total", "v1"): 1}),
        *families.of_pods_api({(name, "OK"): 1 for name in OF_PODS_API}),
        *families.of_pods("mock", 0, 0, 0),
        *families.of_devices({}),
    ]
    totals = {each.samples[0].name for each in collected if each.samples}
    return {each.name for each in collected if f"{each.name}_total" not in totals} | {
        name for name in totals if name.endswith("_total")
    }


def test_documentation_lists_every_metric(existing):
    table = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    assert named(table) == existing


def test_dashboard_file_is_up_to_date():
    assert dashboard.FILE.read_text() == dashboard.text(), "run python -m tools.dashboard"


def test_dashboard_uses_existing_metrics(existing):
    panels = json.loads(dashboard.text())["panels"]
    queries = {target["expr"] for panel in panels for target in panel["targets"]}
    assert {name.removesuffix("_bucket") for name in named(" ".join(queries))} <= existing
    assert len({panel["id"] for panel in panels}) == len(panels)
