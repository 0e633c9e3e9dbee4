"""``check --write-tests --language go``: tests in Go of four faults fail, and pass without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devicemanager.conformance.written_tests import written_tests
from tests.conformance.findings import FAULTS, LIMITS, TOGETHER, command, report
from tests.interop.gobuild import go_test
from tests.interop.test_go_client import MODULE

GO_MOD = f"""\
module example.com/findings

go 1.22

require kubelet-devicemanager/clients/go v0.0.0

replace kubelet-devicemanager/clients/go => {MODULE}
"""
REASONS = {
    "K01": ("waited 5 s for",),
    "A02": ("Allocate accepted an unknown device",),
    "A06": ("two responses for one device differ",),
    "L01": (
        "the plugin still runs 1 s after terminated",
        "the plugin still runs 1 s after interrupt",
    ),
}
"""Texts in the output of `go test`, by check."""


@pytest.mark.parametrize("switches", TOGETHER, ids=lambda group: group[0])
def test_go_tests_fail_for_the_same_reason_and_pass_without_the_faults(
    tmp_path: Path, switches: tuple[str, ...]
) -> None:
    (tmp_path / "go.mod").write_text(GO_MOD)
    ids = [FAULTS[each] for each in switches]
    broken = written_tests(report(command(*switches), *ids), "go", LIMITS)
    path = tmp_path / broken.name
    path.write_text(broken.text)
    done = go_test(tmp_path)
    assert done.stdout.count("--- FAIL: Test") == len(ids), done.stdout + done.stderr
    for reason in (reason for check in ids for reason in REASONS[check]):
        assert reason in done.stdout, (reason, done.stdout)
    path.write_text(written_tests(report(command(), *ids), "go", LIMITS).text)
    done = go_test(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
