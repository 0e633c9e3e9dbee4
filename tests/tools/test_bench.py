"""``python -m tools.bench``: all cases run, and statistics are correct; times are not tested."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from itertools import groupby
from xml.etree import ElementTree

import attrs
import pytest

from devicemanager.testing.fakes import FakePlugin
from tests.helpers import devices
from tools.bench import chart, fleet, reference, report
from tools.bench.__main__ import main
from tools.bench.model import FULL, SCALES, Case, Measurement, quantile, rows
from tools.bench.plugin import RESOURCE, device_list
from tools.bench.registry import MODULES, BenchmarkFailed, cases, measure, measure_together

# tests/claims/core/test_worst_cases.py tests the hard claims: one of them is enough here.
SKIPPED = "claim-worst-(?!small_groups)"


def assert_measured(measured):
    assert measured
    for each in measured:
        assert each.samples
        assert all(map(math.isfinite, [*each.samples, *each.baseline]))
        assert bool(each.against) == bool(each.baseline)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_every_case_runs(module):
    names = [case.name for case in module.cases(SCALES["tiny"])]
    names = [name for name in names if not re.match(SKIPPED, name)]
    # One process for all, because its start is slow.
    together = measure_together(names, "tiny")
    assert list(together) == names
    for measured in together.values():
        assert_measured(measured)


def test_case_runs_in_a_separate_process():
    assert_measured(measure("claim-ledger", "tiny"))


def test_failed_case_raises_and_shows_its_traceback(monkeypatch, capfd):
    # Only this process knows the case.
    monkeypatch.setattr(fleet, "cases", lambda scale: [Case("no-such-case", list)])
    with pytest.raises(BenchmarkFailed, match="no-such-case failed with exit status 1"):
        measure("no-such-case", "tiny")
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("scale", SCALES)
def test_all_scales_have_the_same_cases_in_the_same_order(scale):
    def kind(name: str) -> str:
        return name.rstrip("0123456789x").rstrip("-")

    kinds = [key for key, _ in groupby(kind(case.name) for case in cases(SCALES[scale]))]
    assert kinds == [key for key, _ in groupby(kind(case.name) for case in cases(FULL))]
    names = [case.name for case in cases(SCALES[scale])]
    assert len(set(names)) == len(names)


# -- statistics --------------------------------------------------------------------------


def test_quantile_interpolates_between_neighbours():
    assert [quantile([1, 2, 3, 5], share) for share in (0, 0.5, 1)] == [1, 2.5, 5]
    assert quantile([7.0], 0.99) == 7.0


def measurement(*samples: float, baseline: tuple[float, ...] = (), **fields) -> Measurement:
    against = "floor" if baseline else ""
    return Measurement("a", samples, against=against, baseline=baseline, **fields)


def test_row_combines_samples_of_all_processes():
    slow = measurement(4, 4, 4, baseline=(1, 1, 1), rate="pods")
    fast = measurement(2, 2, baseline=(1, 1), rate="pods")
    (row,) = rows([[slow], [fast]])
    assert (row.count, row.p50, row.baseline, row.ratio) == (5, 4, 1, 3)
    assert (row.lowest_ratio, row.highest_ratio) == (2, 4)
    assert row.per_second == pytest.approx(1000 / 3.2)


@pytest.mark.parametrize(
    ("fields", "missed"),
    [
        ({"at_most": 3.0}, False),
        ({"at_most": 2.9}, True),
        ({"at_most_ratio": 1.5}, False),
        ({"at_most_ratio": 1.4}, True),
        ({"at_most": 2.9, "at_most_ratio": 1.5}, True),
        ({}, False),
    ],
)
def test_goal_is_missed_only_above_its_limit(fields, missed):
    (row,) = rows([[measurement(3, 3, baseline=(2, 2), **fields)]])
    assert row.missed is missed
    assert row.missed is ("missed" in report.table([row]))


# -- the report --------------------------------------------------------------------------


def test_table_aligns_numbers():
    text = report.table(rows([[measurement(1), Measurement("longer", [100, 300])]]))
    _, _, head, first, second = text.splitlines()
    column = head.index("p50") + len("p50")
    assert (first[:column].split()[-1], second[:column].split()[-1]) == ("1.00", "200")


def test_comparison_lists_slower_and_faster_rows():
    (old,) = rows([[measurement(2, 2, baseline=(1, 1))]])
    slower = attrs.evolve(old, ratio=3.0, lowest_ratio=3.0, highest_ratio=3.0)
    other_machine = attrs.evolve(old, p25=8.0, p50=8.0, p75=8.0, baseline=4.0)
    assert "a: ratio 2.00 -> 3.00" in report.comparison([old], [slower])
    assert "faster than before: 1 of 1" in report.comparison([slower], [old])
    assert "slower than before: 0 of 1" in report.comparison([old], [other_machine])
    assert "slower than before: 0 of 0" in report.comparison([], [slower])


def test_comparison_ignores_overlapping_ranges():
    (old,) = rows([[measurement(1, 2, 3)]])
    (noisy,) = rows([[measurement(2, 2.5, 4)]])
    (slower,) = rows([[measurement(4, 5, 6)]])
    assert "slower than before: 0 of 1" in report.comparison([old], [noisy])
    assert "a: ms 2.00 -> 5.00" in report.comparison([old], [slower])


def test_saved_results_load_unchanged(tmp_path):
    results = rows([[measurement(1, 2, baseline=(1, 1))]])
    report.save(tmp_path / "r.json", results)
    assert report.load(tmp_path / "r.json") == results


@pytest.mark.parametrize("text", ["", "{}", '{"rows": [{"unknown": 1}]}', "[1]"])
def test_load_rejects_other_files(tmp_path, text):
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(report.ReportError, match=r"old\.json"):
        report.load(path)


def test_write_page_replaces_only_the_results(tmp_path):
    path = tmp_path / "page.md"
    head, foot = (
        "# Page\n\n<!-- results: written by `make bench` -->\n",
        "<!-- end of results -->\nEnd\n",
    )
    path.write_text(f"{head}{foot}")
    for day in (1, 2):
        report.check_page(path)
        report.write_page(path, rows([[measurement(1, 2, baseline=(1, 1))]]), date(2031, 5, day))
    text = path.read_text()
    assert text.startswith(f"{head}\n2031-05-02: cpus ") and text.endswith(f"\n\n{foot}")
    lines = text[len(head) : -len(foot)].strip().splitlines()
    assert [line.count("|") for line in lines] == [0, 0, 11, 11, 11]


def test_page_without_markers_is_rejected(tmp_path, capsys):
    (tmp_path / "page.md").write_text("# Page\n")
    assert main(["--only", "admission", "--page", str(tmp_path / "page.md")]) == 1
    assert "page.md has no place for results" in capsys.readouterr().err


def test_chart_has_only_sizes_with_equal_pods_and_devices():
    points = [
        attrs.evolve(measurement(size, baseline=(1,), rate="pods"), devices=size, pods=pods)
        for size, pods in ((100, 100), (8, 8), (100, 8))
    ]
    drawn = [row for point in points for row in rows([[point]])]
    svg = ElementTree.fromstring(chart.growth(drawn))
    lines = svg.findall("{*}polyline")
    assert len(lines) == 3
    assert {len(line.attrib["points"].split()) for line in lines} == {2}
    assert not ElementTree.fromstring(chart.growth([])).findall("{*}polyline")


# -- the command -------------------------------------------------------------------------


def test_command_prints_writes_and_compares(tmp_path, capsys):
    json_file, svg = tmp_path / "r.json", tmp_path / "r.svg"
    arguments = ["--scale", "tiny", "--only", "admission-2x2", "--json", str(json_file)]
    assert main([*arguments, "--svg", str(svg)]) == 0
    assert "Allocate + durable write" in capsys.readouterr().out
    assert "<polyline" in svg.read_text()
    assert json.loads(json_file.read_text())["machine"]["cpus"]
    assert main([*arguments, "--compare", str(json_file)]) == 0
    assert "slower than before: " in capsys.readouterr().out


def test_command_rejects_unknown_case(capsys):
    assert main(["--only", "no-such-case"]) == 2
    assert "unknown case no-such-case" in capsys.readouterr().err


def test_command_reads_the_old_results_before_measuring(tmp_path, capsys):
    assert main(["--only", "admission", "--compare", str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().err.startswith("bench: ")


def test_device_list_spreads_devices_over_numa_nodes():
    from protos import deviceplugin_v1beta1 as dp

    devices = dp.ListAndWatchResponse.FromString(device_list(5, 2, ill=4)).devices
    assert [device.topology.nodes[0].ID for device in devices] == [0, 0, 0, 1, 1]
    assert [device.health for device in devices] == ["Healthy"] * 4 + ["Unhealthy"]
    assert not dp.ListAndWatchResponse.FromString(device_list(1, 0)).devices[0].HasField("topology")


class Real:
    """Fake of the real device manager: 3 ms per pod."""

    def __init__(self):
        self.pods = []

    def milliseconds(self, command):
        self.pods.append(command["admit"])
        return 3.0

    def ask(self, command):
        for number in command["remove"]:
            self.pods.remove(number)


class Least:
    """Baseline that records the sizes of the checkpoint."""

    def __init__(self, kubelet):
        self.kubelet = kubelet
        self.sizes = []
        self.done = 0

    def both(self):
        self.done += 1

    def refresh(self):
        self.sizes.append(self.kubelet.checkpoint_path.stat().st_size)


def test_reference_admits_each_pod_with_both_and_the_baseline(make_mock_kubelet):
    kubelet = make_mock_kubelet()
    plugin = FakePlugin(RESOURCE)
    plugin.register(kubelet.manager.plugins)
    plugin.send_list(devices("a", "b"))
    case, real, least = reference.ReferenceCase(2, 2), Real(), Least(kubelet)
    line = reference.admissions(case, kubelet, real, least)
    assert least.done == len(line.baseline) == 300
    assert least.sizes[:2] == sorted(set(least.sizes))
    assert len(line.real) == len(line.ours) == 300 and set(line.real) == {3.0}
    assert real.pods == [298, 299] and len(kubelet.pods()) == 2


def test_reference_table_shows_ratio_and_goal():
    lines = [
        reference.Comparison("a few", [1.0, 2.0, 9.0], [4.0], goal=0.9, baseline=[2.5]),
        reference.Comparison("many", [8.0], [4.0], goal=1.3),
        reference.Comparison("List", [8.0], [2.0]),
    ]
    assert reference.table(lines, "1.36.3").splitlines()[1:] == [
        "           real      ours   ratio  at best  goal",
        "a few      2.00      4.00    0.50     0.80  >= 0.9 missed",
        "many       8.00      4.00    2.00           >= 1.3 met",
        "List       8.00      2.00    4.00",
    ]


def test_command_rejects_unsupported_reference_version(capsys):
    assert main(["--reference", "1.20"]) == 2
    assert "'1.20' is not supported: use one of 1.25.16, " in capsys.readouterr().err
