"""Every check passes for a good client, and fails for a client with the fault it looks for."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from devicemanager.conformance import CheckError, Failed, Outcome, Warned
from devicemanager.conformance.clients import (
    ClientLimits,
    ClientUnderTest,
    client_checks,
    content,
    run_client_checks,
    select_client_checks,
)
from devicemanager.conformance.clients.checks import _check_rate
from devicemanager.conformance.clients.client_run import ClientRun
from devicemanager.conformance.clients.kubelet import ScriptedKubelet
from podresources import PodResourcesClient, encoding
from podresources.encoding import pod_to_bytes
from tests.conformance.clients.exporter import EVERY

_PROGRAM = Path(__file__).with_name("exporter.py")
_ROOT = _PROGRAM.parents[3]

# The exporter calls five times per second.
LIMITS = ClientLimits(
    away_seconds=0.3,
    rate_seconds=1.0,
    # On a busy machine, a loop without pauses is slow, too.
    failed_calls_per_second=8,
    calls_per_second=20,
    scrape_seconds=0.1,
    calls_per_scrape=0,
    least_wait_seconds=30,
    stop_seconds=5,
)

# Switch of the exporter, the check that must fail, and a part of what it must say.
BROKEN = (
    ("silent", "C01", "no call within"),
    ("once", "C01", "hangs or has stopped querying"),
    ("needs-socket", "C02", "exited after its start without a kubelet: exit status 3"),
    ("hangs-without-kubelet", "C03", "no answered call within"),
    ("leaks-on-restart", "C04", "use grows with each restart"),
    ("needs-pods", "C05", "exited after empty lists: exit status 3, output: no pods"),
    ("small-messages", "C06", "rejected a response of 5 MiB"),
    ("few-nodes", "C07", "output: panic: index out of range [63]"),
    ("few-nodes-at-start", "C07", "its start with unknown NUMA nodes: exit status 3"),
    ("unsigned-nodes", "C08", "output: panic: negative"),
    ("known-resources", "C09", "unknown resource"),
    ("needs-devices", "C10", "no devices"),
    ("gets", "C11", "not found"),
    ("ends-on-error", "C12", "exited after errors"),
    ("hot-loop", "C13", "calls per second"),
    ("hot-loop", "C14", "calls per second"),
    ("ends-on-limit", "C14", "exited after"),
    ("no-deadline", "C15", "set a deadline"),
    ("needs-v1", "C16", "needs v1"),
    ("needs-allocatable", "C17", "no call of List"),
    ("greedy", "C18", "calls per second"),
    ("leak", "C19", "use grows"),
    ("ignores-sigterm", "C20", "still runs"),
    ("raw-labels", "C21", "metrics page"),
    ("frozen-page", "C22", "does not change"),
    ("own-samples", "C22", "does not change"),
    ("frozen-page", "C23", "does not change"),
)

_BASE = {"few-nodes-at-start": ("test-calls",)}
"""Other switches that a switch needs."""

# Correct clients that work in another way, and checks that could fail them.
GOOD = (
    ("test-calls", ("C01", "C03", "C07", "C10", "C12", "C13", "C14", "C15")),
    ("pci-only", ("C22", "C23")),
    ("count-only", ("C22", "C23")),
)

# A wait that must end without success is short. All others are long, because of busy machines.
_CHANGED = {
    "needs-socket": {"away_seconds": 30},
    "silent": {"start_seconds": 3},
    "once": {"call_seconds": 3},
    "hangs-without-kubelet": {"call_seconds": 3, "away_seconds": 1},
    "needs-allocatable": {"call_seconds": 3},
    "frozen-page": {"call_seconds": 3},
    "own-samples": {"call_seconds": 3},
    "no-deadline": {"deadline_seconds": 2},
    "ignores-sigterm": {"stop_seconds": 1},
}


def exporter(*switches: str) -> ClientUnderTest:
    words = [word for switch in switches for word in ("--switch", switch)]
    return ClientUnderTest(
        command=[sys.executable, _PROGRAM, "--socket", "{socket}", "--port", "{port}", *words],
        env={"PYTHONPATH": str(_ROOT)},
        metrics="http://127.0.0.1:{port}/metrics",
    )


@pytest.mark.timeout(180)
def test_a_good_client_passes_every_check() -> None:
    report = run_client_checks(exporter(), client_checks(), limits=LIMITS, jobs=2)
    bad = [f"{each.check.id} {each.seen}" for each in report.verdicts if each.outcome != "pass"]
    assert not bad
    assert report.exit_status() == 0


@pytest.mark.parametrize(("switch", "id_", "text"), BROKEN)
def test_a_fault_fails_its_check(switch: str, id_: str, text: str) -> None:
    limits = attrs.evolve(LIMITS, **_CHANGED.get(switch, {}))
    (check,) = select_client_checks([id_])
    run = ClientRun(exporter(switch, *_BASE.get(switch, ())), limits, limits.call_seconds)
    try:
        with pytest.raises(Failed) as caught:
            check.run(run)
    finally:
        run.close()
    assert text in str(caught.value)
    assert run.lines()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("switch", "ids"), GOOD)
def test_another_correct_client_passes(switch: str, ids: tuple[str, ...]) -> None:
    report = run_client_checks(exporter(switch), select_client_checks(ids), limits=LIMITS, jobs=2)
    assert {each.check.id: each.outcome for each in report.verdicts} == dict.fromkeys(ids, "pass")


def test_the_interval_is_that_of_equal_calls() -> None:
    (check,) = select_client_checks(["C01"])
    run = ClientRun(exporter("test-calls"), LIMITS, 30)
    try:
        assert "v1 GetAllocatableResources, v1 List" in (check.run(run) or "")
        assert run.interval is not None and run.interval >= EVERY
    finally:
        run.close()
    run = ClientRun(exporter("test-calls", "once"), attrs.evolve(LIMITS, call_seconds=3), 3)
    try:
        text = r"has made no call three times within 3 s: .* call_seconds"
        with pytest.raises(Failed, match=text):
            check.run(run)
    finally:
        run.close()


def test_a_response_is_encoded_before_the_first_call_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubelet = ScriptedKubelet()
    seen = []

    def encode(*args: Any, **options: Any) -> bytes:
        if not seen:
            # The client must not wait for the encoding: it gets the previous content.
            seen.append([pod.name for pod in client.list()])
        return pod_to_bytes(*args, **options)

    with contextlib.closing(kubelet):
        kubelet.show(content.ordinary(["vendor.com/gpu"], count=1))
        kubelet.start()
        with PodResourcesClient(kubelet.socket) as client:
            monkeypatch.setattr(encoding, "pod_to_bytes", encode)
            kubelet.show(content.ordinary(["vendor.com/gpu"], first=7, count=1))
            assert seen == [["web", "train-0"]]
            assert [pod.name for pod in client.list()] == ["web", "train-7"]


def test_every_check_has_a_broken_client() -> None:
    assert {id_ for _, id_, _ in BROKEN} == {each.id for each in client_checks()}


def test_a_client_that_ends_with_the_kubelet_gets_a_warning() -> None:
    (check,) = select_client_checks(["C03"])
    # The client calls five times a second; a slow one must notice that the kubelet is away.
    run = ClientRun(exporter("ends-without-kubelet"), attrs.evolve(LIMITS, away_seconds=3.0), 30)
    try:
        with pytest.raises(
            Warned, match="lost the kubelet; the client recovers after it is started again"
        ):
            check.run(run)
    finally:
        run.close()


def test_a_rate_has_a_decimal() -> None:
    """Otherwise "2 calls per second, more than 2" would be possible."""
    run = SimpleNamespace(
        kubelet=SimpleNamespace(mark=lambda: 0),
        scrapes=0,
        process=None,
        limits=ClientLimits(),
        until=lambda condition, seconds: None,
        rate=lambda *_: (2.4, 12),
        check_running=lambda after: None,
    )
    with pytest.raises(Failed, match=r"^2\.4 calls per second after errors, more than 2$"):
        _check_rate(cast(ClientRun, run), 2, "errors")


def test_one_cause_is_reported_once() -> None:
    checks = select_client_checks(["C01", "C05", "C16"])
    report = run_client_checks(
        exporter("silent"), checks, limits=attrs.evolve(LIMITS, start_seconds=3)
    )
    assert [each.outcome for each in report.verdicts] == [Outcome.FAIL, Outcome.SKIP, Outcome.SKIP]
    assert report.verdicts[1].seen.startswith("see C01")


def test_a_missing_command_is_an_error() -> None:
    client = ClientUnderTest(command=["/no/such/exporter"])
    with pytest.raises(CheckError, match="cannot be started"):
        run_client_checks(client, client_checks()[:1], limits=LIMITS)
