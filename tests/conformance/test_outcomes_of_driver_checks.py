"""What each check says about a DRA driver, without a driver: one row per outcome of a check."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import grpc
import pytest

from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers import DriverLimits, driver_checks
from devicemanager.conformance.drivers.checks import claims as claim_checks
from devicemanager.conformance.drivers.checks import lifecycle, restarts, slices
from devicemanager.conformance.drivers.run import DriverRun, check_entries, shown
from devicemanager.conformance.outcomes import Failed, Lost, Skipped, Warned
from protos import dra_v1
from tests.conformance.recorded_run import bound

DRIVER, REQUEST = "gpu.example.com", claim_checks.REQUEST
CHECKS = {check.id: check for check in driver_checks()}
LIMITS = DriverLimits(
    settle_seconds=0.0,
    slow_api_seconds=0.0,
    refresh_seconds=0.0,
    publish_seconds=0.0,
    away_seconds=0.0,
    start_seconds=0.0,
    grace_seconds=0.0,
)


def outcome(id_: str, run: Any) -> str:
    """Run a check. Return its outcome, the ID of the check that may report the cause, and its
    text."""
    try:
        return f"pass: {CHECKS[id_].run(run)}"
    except Failed as failed:
        return f"{'lost' if isinstance(failed, Lost) else 'fail'}: {failed}"
    except CallFailed as failed:
        return f"call: {failed}"
    except Warned as warned:
        return f"warn: {warned}"
    except Skipped as skipped:
        return f"skip{skipped.cause and f' {skipped.cause}'}: {skipped}"


def error(code: str = "INTERNAL") -> CallFailed:
    made = CallFailed("NodePrepareResources", grpc.RpcError())
    made.code = code
    made.args = (f"NodePrepareResources failed with {code}: no",)
    return made


def entry(
    device: str = "gpu-0", *cdi: str, pool: str = "mock", request: str = "", fails: str = ""
) -> Any:
    """Return a claim's entry in a response."""
    made = dra_v1.NodePrepareResourceResponse(error=fails)
    if not fails:
        made.devices.add(
            pool_name=pool,
            device_name=device,
            request_names=[request or REQUEST],
            cdi_device_ids=cdi,
        )
    return made


def result(device: str = "gpu-0", pool: str = "mock", **more: Any) -> dict[str, Any]:
    return {
        "request": REQUEST, "driver": DRIVER, "pool": pool, "device": device, **more,
    }  # fmt: skip


class Cdi:
    """CDI directories, whose devices are given one after another."""

    def __init__(self, *devices: Any) -> None:
        self.devices = list(devices) or [()]
        self.found = ["file"]
        self.wrong: list[str] = []

    def registry(self) -> Any:
        now = self.devices.pop(0) if len(self.devices) > 1 else self.devices[0]
        return SimpleNamespace(devices=dict.fromkeys(now))

    def files(self) -> list[str]:
        return self.found

    def errors(self) -> list[str]:
        return self.wrong

    def remove_files(self, *where: Any) -> None:
        pass


class Run(DriverRun):
    """Run whose driver responds with these entries, one after another."""

    def __init__(self, *answers: Any, results: Any = (), cdi: Cdi | None = None) -> None:
        self.seen: list[Any] = []
        self.limits = LIMITS
        self.answers = [*answers] or [entry()]
        self.given = [*results] or [result(), result("gpu-1")]
        self.made: list[dict[str, Any]] = []
        self.directories = cdi or Cdi()
        self.unresolved: list[str] = []
        self.timeline: Any = SimpleNamespace(step=self.seen.append)
        self.rng = random.Random(1)
        self.disproved = set()
        self.resources = (DRIVER,)
        self.found: list[Any] = []
        self.refused: list[str] = []
        self.missing = ""
        self.sockets: list[Path] = []
        note = self.seen.append
        self.server: Any = SimpleNamespace(
            stop=lambda: note("api.stop"),
            start=lambda: note("api.start"),
            delete=lambda *what: note(("delete", *what)),
            create=lambda *what: note(("create", *what)),
            change=lambda *what, **more: note(("change", *what[:2])),
            get=lambda plural, name: None,
            forget_changes=lambda: note("forget"),
            version=7,
            faults=SimpleNamespace(
                slow=None,
                clear=lambda: note("clear faults"),
                fail=lambda code, match, times: note(("fail", code, times)),
            ),
            requests=SimpleNamespace(total=lambda: 1),
        )
        self.stage: Any = SimpleNamespace(
            api=self.server,
            device_counts={DRIVER: 2},
            serve_api=lambda hidden: note(("hidden", *hidden)),
            cdi_dir="cdi",
            new_boot_id=lambda: note("new boot ID"),
        )
        self.kubelet: Any = SimpleNamespace(
            mark=lambda: "mark",
            start=lambda: note("kubelet.start"),
            stop=lambda: note("kubelet.stop"),
            restart=lambda: note("kubelet.restart"),
            terminate=lambda uid: note(f"terminate {uid}"),
            has_pod=lambda uid: False,
            plugins_registry_dir=Path("/registry"),
            faults=SimpleNamespace(
                set=lambda *words, **more: note(("set", *words, more)),
                clear=lambda: note("clear"),
            ),
        )
        process = SimpleNamespace(
            is_running=True,
            exit_status=None,
            kill=lambda: note("kill"),
            send_signal=lambda number: note(f"signal {int(number)}"),
            output=lambda: ["printed"],
        )
        self.plugin: Any = SimpleNamespace(
            process=process,
            has_exited=False,
            has_exited_once=False,
            exit_text=lambda: "exit status 1",
            stop=lambda process: note("stop"),
            core_waits=dict,
            under_test=SimpleNamespace(kind="driver", has=lambda name: True),
            change=lambda name, id_: note((name, id_)),
        )
        self.slow: Any = None

    @property
    def cdi(self) -> Any:
        return self.directories

    def start(self) -> None:
        self.seen.append("start")

    def relaunch(self, after: str) -> None:
        self.seen.append(f"relaunch after {after}")

    def launch(self, *before: str, hook: str = "") -> Any:
        self.seen.append("launch")
        return self.plugin.process

    def wait_registered(self, since: Any, seconds: float, after: str) -> float:
        self.seen.append(f"registered {seconds:g} s after {after}")
        return 1.25

    def wait_devices(self) -> None:
        self.seen.append("devices")

    def wait_slices(self, after: str) -> float:
        self.seen.append(f"slices after {after}")
        return 2.25

    def slices(self) -> list[Any]:
        return self.found.pop(0) if len(self.found) > 1 else (self.found or [[]])[0]

    def incomplete(self) -> str:
        return self.missing

    def rejected(self, resource: str, subresource: str = "") -> list[str]:
        return self.refused

    def writes(self, resource: str, subresource: str = "") -> list[Any]:
        return []

    def registration_sockets(self) -> list[Path]:
        return self.sockets

    def results(self, count: int = 1, least: int = 1) -> list[dict[str, Any]]:
        if len(self.given) < least:
            raise Skipped(f"needs {least}")
        return self.given[:count]

    def load(self, claim: Mapping[str, Any]) -> Any:
        name = claim["metadata"]["name"]
        metadata = {"namespace": "default", "uid": f"uid-{len(self.made)}", **claim["metadata"]}
        made = {**claim, "metadata": metadata}
        self.made.append(made)
        assert name
        return made

    def new_name(self) -> str:
        return f"c{len(self.made)}"

    @contextlib.contextmanager
    def client(self, service: str | None = None) -> Iterator[Any]:
        yield SimpleNamespace(
            prepare=lambda *claims, seconds=0.0: self._respond("prepare", claims),
            unprepare=lambda *claims, seconds=0.0: self._respond("unprepare", claims),
        )

    def _respond(self, what: str, claims: Any) -> dict[str, Any]:
        self.seen.append(f"{what} {' '.join(each.name for each in claims)}")
        entries = {}
        for claim in claims:
            made: Any = entry()
            if what == "prepare":
                made = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            elif self.slow is not None:
                made = self.slow
            if isinstance(made, Exception):
                raise made
            if made is not None:
                entries[claim.uid] = made
        return entries

    def check_resolved(self, entry: Any, when: str = "") -> None:
        self.seen.append(f"resolved{when}")
        if self.unresolved and (problem := self.unresolved.pop(0)):
            raise Failed(f"{problem}{when}")

    def done(self) -> list[Any]:
        """Return what the check has done, without the lines of the timeline about calls."""
        return [
            each
            for each in self.seen
            if not str(each).startswith(("NodePrepare", "NodeUnprepare", "create claim"))
        ]


# -- claims ------------------------------------------------------------------------------------

_SHARED = [result(shareID="x")]
_BAD = "the bad claim has the error 'no'"
_CALL = "call: NodePrepareResources failed with INTERNAL: no"
_ERROR = "fail: NodePrepareResources failed for claim UID uid-0: no"


@pytest.mark.parametrize(
    ("id_", "answers", "results", "expected"),
    [
        ("DC02", [entry()], [], "pass: 1 device"),
        ("DC02", [entry("gpu-1")], [], "fail: device mock/gpu-1 was not allocated to the claim"),
        ("DC02", [entry(pool="p")], [], "fail: device p/gpu-0 was not allocated to the claim"),
        ("DC02", [entry(request="x")], [], "fail: unknown request name 'x': the claim has "
         f"{REQUEST!r}"),
        ("DC03", [entry("gpu-0", "a", "b"), entry("gpu-0", "b", "a")], [], "pass: None"),
        ("DC03", [entry("gpu-0", "a"), entry("gpu-0", "b")], [], "fail: two NodePrepareResources "
         "calls for one claim have different responses: [('mock', 'gpu-0', '', "
         f"('{REQUEST}',), ('a',))], then [('mock', 'gpu-0', '', "
         f"('{REQUEST}',), ('b',))]"),
        ("DC04", [entry()], [], "pass: None"),
        ("DC04", [entry(), entry(), error()], [], "fail: the device is not free after two "
         "NodePrepareResources and one NodeUnprepareResources: NodePrepareResources failed with "
         "INTERNAL: no"),
        ("DC04", [entry(), entry(), entry(fails="no")], [], "fail: the device is not free after "
         "two NodePrepareResources and one NodeUnprepareResources: NodePrepareResources failed for "
         "claim UID uid-1: no"),
        ("DC05", [entry()], [], "pass: None"),
        ("DC06", [entry(fails="no")], [], _ERROR),
        ("DC07", [error()], [], _CALL),
        ("DC08", [entry()], [], "pass: None"),
        ("DC09", [entry()], [], "pass: 2 claims in one call"),
        ("DC09", [entry()], [result()], "skip: needs 2"),
        ("DC10", [entry(), entry(fails="no")], [], f"pass: {_BAD}"),
        ("DC10", [entry()], [], "pass: the driver accepts the bad claim, too: see check DC11"),
        ("DC10", [entry(), None], [], "pass: the driver accepts the bad claim, too: see check "
         "DC11"),
        ("DC10", [entry(fails="no"), entry(fails="no")], [], _ERROR),
        ("DC10", [error()], [], _CALL),
        ("DC11", [entry(fails="no")], [], "pass: None"),
        ("DC11", [None], [], "pass: None"),
        ("DC11", [error()], [], "pass: None"),
        ("DC11", [error("UNAVAILABLE")], [], "fail: NodePrepareResources failed with UNAVAILABLE: "
         "no"),
        ("DC11", [entry()], [], "fail: NodePrepareResources succeeded for a device that the driver "
         "does not have"),
        ("DC12", [entry()], [], "pass: None"),
        ("DC12", [entry(pool="other")], [], "fail: the response has the device of another driver"),
        ("DC12", [entry(pool="other")], [result(pool="other")], "pass: None"),
        ("DC13", [entry()], [], "pass: None"),
        ("DC14", [entry()], [], "pass: None"),
        ("DC14", [entry(request="x/sub")], [], "fail: the response names the request 'x/sub': "
         f"expected {REQUEST!r}, without the subrequest"),
        ("DC15", [entry()], _SHARED, "skip: the driver's devices can be shared"),
        ("DC15", [entry(), entry(fails="no")], [], "pass: None"),
        ("DC15", [entry(), None], [], "pass: None"),
        ("DC15", [entry(), error()], [], "pass: None"),
        ("DC15", [entry(), error("CANCELLED")], [], "fail: NodePrepareResources failed with "
         "CANCELLED: no"),
        ("DC15", [entry()], [], "fail: device mock/gpu-0 was prepared for two claims at the same "
         "time"),
        ("DC16", [entry(), entry(fails="no")], [], f"pass: {_BAD}"),
        ("DC16", [entry()], [], "pass: unknown parameters are ignored"),
        ("DC17", [entry(fails="no"), entry()], [], "pass: None"),
        ("DC17", [error(), entry()], [], "pass: None"),
        ("DC17", [dra_v1.NodePrepareResourceResponse(), entry()], [], "pass: None"),
        ("DC17", [error("DEADLINE_EXCEEDED")], [], "fail: NodePrepareResources failed with "
         "DEADLINE_EXCEEDED: no"),
        ("DC17", [entry()], [], "fail: NodePrepareResources succeeded for a claim that does not "
         "exist"),
        ("DC18", [entry()], [], "fail: NodePrepareResources succeeded for a claim that is not "
         "allocated"),
        ("DC18", [None, entry()], [], "pass: None"),
        ("DC19", [entry()], [], "fail: NodePrepareResources succeeded for a claim that was "
         "replaced by a claim with another UID"),
        ("DC19", [error(), error()], [], _CALL),
        ("DC22", [entry()], [], "skip: the driver does not write status.devices"),
        ("DC23", [entry()], _SHARED, "skip: the driver's devices can be shared"),
        ("DC23", [entry()], [], "pass: None"),
    ],
)  # fmt: skip
def test_claims(id_: str, answers: list[Any], results: list[Any], expected: str) -> None:
    run = Run(*answers, results=results)
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("id_", "answers", "done"),
    [
        ("DC02", [], ["prepare c0", "unprepare c0"]),
        ("DC03", [], ["prepare c0", "prepare c0", "unprepare c0"]),
        ("DC04", [], ["prepare c0", "prepare c0", "unprepare c0", "prepare c1", "unprepare c1"]),
        ("DC05", [], ["unprepare c0"]),
        ("DC06", [], ["prepare c0", "unprepare c0", "unprepare c0"]),
        ("DC07", [], ["prepare c0", "delete the claim", ("delete", "resourceclaims", "c0"),
                      "unprepare c0"]),
        ("DC08", [], ["start", "prepare c0", "stop the API server", "api.stop", "unprepare c0",
                      "api.start"]),
        ("DC09", [], ["prepare c0 c1", "unprepare c0 c1"]),
        ("DC10", [], ["prepare c0 c1", "unprepare c0 c1"]),
        ("DC11", [entry(fails="no")], ["prepare c0", "unprepare c0"]),
        ("DC12", [], ["prepare c0", "unprepare c0"]),
        ("DC13", [], ["prepare c0", "unprepare c0"]),
        ("DC14", [], ["prepare c0", "unprepare c0"]),
        ("DC15", [entry(), error()], ["prepare c0", "prepare c1", "unprepare c0"]),
        ("DC15", [], ["prepare c0", "prepare c1", "unprepare c1", "unprepare c0"]),
        ("DC16", [], ["prepare c0 c1", "unprepare c0 c1"]),
        ("DC17", [None, entry()], ["delete the claim", ("delete", "resourceclaims", "c0"),
                                   "prepare c0", "prepare c1", "unprepare c1"]),
        ("DC17", [], ["delete the claim", ("delete", "resourceclaims", "c0"), "prepare c0",
                      "unprepare c0"]),
        ("DC18", [None, entry()], ["prepare c0", "prepare c1", "unprepare c1"]),
        ("DC19", [None, entry()], ["delete the claim", ("delete", "resourceclaims", "c0"),
                                   "prepare c0", "prepare c2", "unprepare c2"]),
        ("DC23", [], ["allow admin access in namespace default",
                      ("change", "namespaces", "default"), "prepare c0", "prepare c1",
                      "resolved after a claim with admin access was prepared", "unprepare c1",
                      "resolved after a claim with admin access was unprepared", "unprepare c0"]),
        ("DK02", [], ["start", "prepare c0", "restart the kubelet", "kubelet.restart", "registered "
                      "60 s after the restart", "prepare c0", "resolved after the kubelet's "
                      "restart", "unprepare c0"]),
        ("DK03", [], ["start", "prepare c0", "SIGTERM", "stop", "launch", "registered 60 s after "
                      "the driver's restart", "devices", "prepare c0", "resolved after the driver's"
                      " restart", "unprepare c0"]),
        ("DK04", [], ["start", "prepare c0", "SIGKILL", "kill", "launch", "registered 60 s after "
                      "SIGKILL", "devices", "prepare c0", "resolved after SIGKILL",
                      "unprepare c0"]),
        ("DK06", [], ["start", "prepare c0", "stop", "delete the claim",
                      ("delete", "resourceclaims", "c0"), "launch", "registered 60 s after the "
                      "driver's restart", "devices", "prepare c1", "unprepare c1"]),
        ("DR01", [], ["start the kubelet", "kubelet.start", "launch", "registered 0 s after its "
                      "start"]),
        ("DR05", [], ["start", "stop", "launch", "registered 0 s after its restart", "prepare c0",
                      "unprepare c0"]),
        ("DF05", [entry("gpu-0", "a")], ["prepare c0", "remove all CDI files", "prepare c0",
                                         "resolved after the files were removed and the claim was "
                                         "prepared again", "unprepare c0"]),
        ("DF03", [entry("gpu-0", "a")], ["prepare c0", "prepare c1", "resolved after another claim "
                                         "was prepared", "unprepare c1", "resolved after another "
                                         "claim was unprepared", "unprepare c0"]),
    ],
)  # fmt: skip
def test_what_a_check_does(id_: str, answers: list[Any], done: list[Any]) -> None:
    run = Run(*answers)
    run.timed = lambda call, what: (call(), 0.5)[1]  # type: ignore[method-assign]
    outcome(id_, run)
    assert run.done() == done


def test_claims_that_checks_create() -> None:
    def made(id_: str, *answers: Any) -> list[Any]:
        run = Run(*answers)
        outcome(id_, run)
        return [
            (each["spec"]["devices"]["requests"], each.get("status", {}).get("allocation"))
            for each in run.made
        ]

    foreign = "other-driver.conformance.example.com"
    results = [
        {"request": REQUEST, "driver": foreign, "pool": "other", "device": "other-0"},
        result(),
    ]
    assert made("DC12")[0][1]["devices"]["results"] == results
    for id_ in ("DC10", "DC11"):
        assert made(id_)[-1][1]["devices"]["results"][0]["device"] == "no-such-device"
    source = {"source": "FromClaim", "requests": [REQUEST]}
    parameters = {"apiVersion": "other.example.com/v1", "kind": "OtherConfig", "level": 11}
    [(_, allocation)] = made("DC13")
    opaque = {"driver": foreign, "parameters": parameters}
    assert allocation["devices"]["config"] == [{**source, "opaque": opaque}]
    parameters = {"apiVersion": "conformance.example.com/v1", "kind": "Nonsense", "sharing": []}
    good, bad = made("DC16")
    assert good[1]["devices"]["config"] == []
    opaque = {"driver": DRIVER, "parameters": parameters}
    assert bad[1]["devices"]["config"] == [{**source, "opaque": opaque}]
    [(requests, allocation)] = made("DC14")
    tolerations = [{"operator": "Exists"}]
    sub = {"name": "sub", "deviceClassName": claim_checks.CLASS, "tolerations": tolerations}
    assert requests == [{"name": REQUEST, "firstAvailable": [sub]}]
    assert allocation["devices"]["results"][0]["request"] == f"{REQUEST}/sub"
    (requests, allocation) = made("DC23")[1]
    exactly = {
        "deviceClassName": claim_checks.CLASS, "adminAccess": True, "tolerations": tolerations,
    }  # fmt: skip
    assert requests == [{"name": REQUEST, "exactly": exactly}]
    assert allocation["devices"]["results"] == [result(adminAccess=True)]
    assert made("DC18", None, entry())[0][1] is None


@pytest.mark.parametrize(
    ("took", "has_pod", "expected"),
    [
        (10.0, False, "pass: the pod started after 10.00 s"),
        (10.5, False, "warn: the pod started only after 10.5 s"),
        (1.0, True, "fail: the pod cannot end, because its claim cannot be unprepared"),
    ],
)
def test_dc01(took: float, has_pod: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, took])
    monkeypatch.setattr(claim_checks, "time", SimpleNamespace(monotonic=lambda: next(times)))
    run = Run()
    run.admit = lambda claim: "uid"  # type: ignore[method-assign, assignment, misc]
    run.kubelet.has_pod = lambda uid: has_pod
    assert outcome("DC01", run) == expected
    assert run.seen[-1] == "terminate uid"


def test_device_of_another_claim_gets_a_new_share_id() -> None:
    run = Run(results=[result(shareID="x")])
    [claim] = run.claims()
    other = claim_checks._same_devices(run, claim)
    [again] = other["status"]["allocation"]["devices"]["results"]
    assert again.pop("shareID") != "x" and again == result()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["a"], ["a"], "pass: None"),
        ([], ["a"], "fail: after two NodePrepareResources calls, one NodeUnprepareResources call "
         "does not remove the CDI devices"),
        ([], ["b"], "pass: None"),
    ],
)  # fmt: skip
def test_dc04_compares_cdi_devices(before: list[str], after: list[str], expected: str) -> None:
    run = Run(entry("gpu-0", "a"), cdi=Cdi(before, after))
    assert outcome("DC04", run) == expected


@pytest.mark.parametrize(
    ("answers", "left", "expected"),
    [
        ([error("DEADLINE_EXCEEDED"), entry()], [], "pass: with a deadline of 0 s"),
        ([error("UNKNOWN")], [], "fail: NodePrepareResources failed before its deadline: "
         "NodePrepareResources failed with UNKNOWN: no"),
        ([entry()], [], "skip: the driver does not read the claim from the API server"),
        ([error("DEADLINE_EXCEEDED")], ["c", "b"], "fail: the CDI device b was created after "
         "NodeUnprepareResources, by a NodePrepareResources call whose deadline had passed"),
        ([error("DEADLINE_EXCEEDED"), error()], [], "fail: the device is not free after a call "
         "whose deadline has passed: NodePrepareResources failed with INTERNAL: no"),
    ],
)  # fmt: skip
def test_dc20(answers: list[Any], left: list[str], expected: str) -> None:
    run = Run(*answers, cdi=Cdi([], left))
    assert outcome("DC20", run) == expected
    assert run.server.faults.slow == 0
    if "before its deadline" not in expected:
        assert run.done()[2:] != [] and "clear faults" in run.seen and "unprepare c0" in run.seen


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (10.0, "pass: 2 claims, at most 10.00 s"),
        (10.5, "warn: 2 claims at the same time took up to 10.5 s"),
    ],
)
def test_dc21(seconds: float, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    local = threading.local()

    def monotonic() -> float:
        local.count = getattr(local, "count", 0) + 1
        return seconds if local.count % 2 == 0 else 0.0

    monkeypatch.setattr(claim_checks, "time", SimpleNamespace(monotonic=monotonic))
    run = Run()
    assert outcome("DC21", run) == expected
    assert {"prepare c0", "unprepare c0", "prepare c1", "unprepare c1"} <= {*run.seen}
    assert outcome("DC21", Run(results=[result()])) == "skip: needs 2"


@pytest.mark.parametrize(
    ("stored", "refused", "expected"),
    [
        ({"status": {"devices": [1, 2]}}, [], "pass: 2 devices"),
        ({"status": {"devices": None}}, [], "skip: the driver does not write status.devices"),
        ({}, [], "skip: the driver does not write status.devices"),
        ({"status": {"devices": [1]}}, ["a", "b"], "fail: the API server rejected status.devices: "
         "b"),
    ],
)  # fmt: skip
def test_dc22(stored: Any, refused: list[str], expected: str) -> None:
    run = Run()
    run.server.get = lambda plural, name: stored
    lists = iter([["old"], ["old", *refused]])
    run.rejected = lambda resource, subresource: next(lists)  # type: ignore[method-assign, assignment, misc]
    assert outcome("DC22", run) == expected


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"u0": "", "u1": ""}, ""),
        ({"u1": ""}, "the response to X has no entry for claim UID u0"),
        ({}, "the response to X has no entry for claim UID u0, u1"),
        ({"u0": "", "u1": "", "z": "", "y": ""}, "the response to X has an entry for unknown claim "
         "UID y, z"),
        ({"u0": "", "u1": "no"}, "X failed for claim UID u1: no"),
    ],
)  # fmt: skip
def test_entries_are_those_of_the_claims(entries: dict[str, str], text: str) -> None:
    claims: Any = [{"metadata": {"uid": uid}} for uid in ("u0", "u1")]
    given = {uid: SimpleNamespace(error=each) for uid, each in entries.items()}
    with pytest.raises(Failed) if text else contextlib.nullcontext() as raised:
        check_entries("X", given, claims)
    assert not text or str(raised.value) == text


# -- slices ------------------------------------------------------------------------------------


def slice_(*devices: Any, name: str = "s", pool: str = "mock", **more: Any) -> dict[str, Any]:
    listed = [each if isinstance(each, dict) else {"name": each} for each in devices]
    metadata = {"name": name, "ownerReferences": more.pop("owners", [{"kind": "Node"}])}
    return {
        "metadata": metadata,
        "spec": {
            "driver": DRIVER,
            "nodeName": slices.NODE,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": listed,
            **more,
        },
    }


_ONE = [slice_("a", "b")]
_NO_SLICES = "skip DS01: the driver has published no slices"


@pytest.mark.parametrize(
    ("id_", "found", "more", "expected"),
    [
        ("DS01", _ONE, {}, "pass: 2 devices in 1 slice"),
        ("DS01", [], {}, "warn: no ResourceSlice: correct only on a node without devices"),
        ("DS01", [], {"refused": ["a", "b"]}, "fail: the API server rejected every ResourceSlice: "
         "b"),
        ("DS01", _ONE, {"refused": ["a"]}, "pass: 2 devices in 1 slice"),
        ("DS01", _ONE, {"missing": "no"}, "fail: no"),
        ("DS02", _ONE, {}, "pass: None"),
        ("DS02", [], {}, _NO_SLICES),
        ("DS02", _ONE, {"refused": ["a", "b"]}, "fail: the API server rejected a ResourceSlice: b"),
        ("DS03", [], {}, _NO_SLICES),
        ("DS03", _ONE, {}, "pass: None"),
        ("DS03", [slice_("a", "b", "b")], {}, "fail: pool mock has the device b twice"),
        ("DS03", [slice_("a"), slice_("a", name="t", pool="p")], {}, "pass: None"),
        ("DS03", [slice_("a", nodeName="x")], {}, "fail: slice s has nodeName x, expected "
         f"{slices.NODE}"),
        ("DS03", [slice_("a", nodeName=None)], {}, "pass: None"),
        ("DS04", [], {}, _NO_SLICES),
        ("DS04", _ONE, {}, "pass: 2.2 s"),
        ("DS05", [], {}, _NO_SLICES),
        ("DS05", _ONE, {}, "pass: 2 devices"),
        ("DS06", _ONE, {}, "pass: 2.2 s"),
        ("DS07", [], {}, _NO_SLICES),
        ("DS07", _ONE, {}, "pass: 2.2 s"),
        ("DS08", _ONE, {}, "pass: 2.2 s"),
        ("DS09", _ONE, {}, "pass: 0.0 s"),
        ("DS09", _ONE, {"missing": "no"}, "fail: the driver needs resource.k8s.io/v1: Kubernetes "
         "1.34 or later"),
        ("DS10", [], {}, _NO_SLICES),
        ("DS10", [slice_({"name": "a", "attributes": {"x": 1, "other/x": 1}})], {}, "pass: None"),
        ("DS10", [slice_({"name": "a", "attributes": {f"{DRIVER}/x": 1}})], {}, "fail: device a "
         f"has the attribute {DRIVER}/x: omit the driver's own domain"),
        ("DS11", [], {}, _NO_SLICES),
        ("DS11", _ONE, {}, "pass: None"),
        ("DS11", [slice_(owners=[{"kind": "Pod"}])], {}, "fail: slice s has no Node as its owner"),
        ("DS11", [slice_(owners=None)], {}, "fail: slice s has no Node as its owner"),
        ("DS12", [], {}, _NO_SLICES),
        ("DS12", [slice_("a", {"name": "b", "taints": [1]})], {}, "pass: 0.0 s"),
        ("DS12", _ONE, {}, "fail: the slices still have device mock/b without a taint 0 s after "
         "the hook break-device"),
    ],
)  # fmt: skip
def test_slices(id_: str, found: list[Any], more: dict[str, Any], expected: str) -> None:
    run = Run()
    run.found = [found]
    for name, value in more.items():
        setattr(run, name, value)
    assert outcome(id_, run) == expected


@pytest.mark.parametrize("id_", ["DS06", "DS08", "DS09"])
def test_slices_of_a_driver_without_devices(id_: str) -> None:
    run = Run()
    run.stage.device_counts = {DRIVER: 0}
    assert outcome(id_, run) == "skip: the driver publishes no devices"
    run.stage.device_counts = {}
    assert outcome(id_, run).startswith("pass: ")


@pytest.mark.parametrize(
    ("id_", "done"),
    [
        ("DS04", ["start", "delete all ResourceSlices", ("delete", "resourceslices", "s"),
                  "slices after a kubelet deleted the slices"]),
        ("DS05", ["start", "stop", "relaunch after the driver's restart", "slices after the "
                  "driver's restart", "wait 0 s"]),
        ("DS06", ["start the kubelet", "kubelet.start", ("fail", 409, 2), "respond to the first "
                  "two writes of slices with 409", "launch", "registered 0 s after its start",
                  "slices after two responses with 409"]),
        ("DS07", ["start", "stop the API server", "api.stop", "delete all ResourceSlices",
                  ("delete", "resourceslices", "s"), "forget", "start the API server", "api.start",
                  "slices after the slices were deleted while no watch was open"]),
        ("DS08", ["start the kubelet", "kubelet.start", "delete the Node",
                  ("delete", "nodes", slices.NODE), "launch", "create the Node",
                  ("create", "nodes", {"metadata": {"name": slices.NODE}}), "slices after the Node "
                  "was created"]),
        ("DS09", ["api.stop", "serve resource.k8s.io only in v1beta1",
                  ("hidden", "resource.k8s.io/v1", "resource.k8s.io/v1beta2"), "start the kubelet",
                  "kubelet.start", "launch"]),
    ],
)  # fmt: skip
def test_what_a_check_of_slices_does(id_: str, done: list[Any]) -> None:
    run = Run()
    run.found = [_ONE]
    outcome(id_, run)
    assert run.seen == done


@pytest.mark.parametrize(
    ("id_", "now", "expected"),
    [
        ("DS04", [slice_("c", "a")], "fail: the published devices differ after the slices were "
         "deleted: new mock/c, missing mock/b"),
        ("DS05", [slice_("a", "b", "c")], "fail: the published devices differ after the driver's "
         "restart: new mock/c, missing none"),
        ("DS04", [slice_("a")], "fail: the published devices differ after the slices were deleted: "
         "new none, missing mock/b"),
        ("DS05", [slice_("a"), slice_("b", name="t")], "fail: 2 slices after the driver's restart, "
         "1 before"),
    ],
)  # fmt: skip
def test_slices_are_compared(id_: str, now: list[Any], expected: str) -> None:
    run = Run()
    run.found = [_ONE]
    change = run.wait_slices
    run.wait_slices = lambda after: (setattr(run, "found", [now]), change(after))[1]  # type: ignore[method-assign]
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("id_", "status", "expected"),
    [
        ("DS08", 0, "fail: the driver exited with status 0 without a Node"),
        ("DS08", 1, "warn: the driver exited without a Node: exit status 1"),
        ("DS09", 1, "fail: the driver needs resource.k8s.io/v1: Kubernetes 1.34 or later"),
        ("DR06", 0, "fail: the driver exited with status 0 without an API server"),
        ("DR06", 1, "warn: the driver exited without an API server: exit status 1. It printed: "
         "printed"),
    ],
)  # fmt: skip
def test_driver_that_exits(id_: str, status: int, expected: str, tmp_path: Path) -> None:
    run = Run()
    run.kubelet.root = tmp_path
    run.kubelet.plugins_registry_dir = tmp_path / "registry"
    run.plugin.has_exited, run.plugin.process.exit_status = True, status
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("spec", "missing", "changed"),
    [
        (slice_("a", "b"), "", False),
        (slice_("a"), "", True),
        (slice_("a"), "no", False),
        (slice_("a", {"name": "b", "taints": []}), "", False),
        (slice_("a", {"name": "b", "taints": [1]}), "", True),
        (slice_("a", "b", pool="other"), "", True),
        (slice_(devices=None), "", True),
    ],
)
def test_changed_device_is_missing_or_tainted(spec: Any, missing: str, changed: bool) -> None:
    run = Run()
    run.found, run.missing = [[spec]], missing
    assert slices._has_changed(run, "mock", "b") is changed


# -- restarts and the life cycle ---------------------------------------------------------------

_DIFFERS = f"[('mock', 'gpu-1', '', ('{REQUEST}',), ())]; before: [('mock', 'gpu-0', "
_DIFFERS += f"'', ('{REQUEST}',), ())]"


@pytest.mark.parametrize(
    ("id_", "answers", "results", "expected"),
    [
        ("DK01", [], [], "pass: registered 1.25 s after the restart"),
        ("DK02", [entry(), entry("gpu-1")], [], "fail: the response after the kubelet's restart "
         f"differs: {_DIFFERS}"),
        ("DK03", [entry(), entry("gpu-1")], [], "fail: the response after the driver's restart "
         f"differs: {_DIFFERS}"),
        ("DK04", [entry(), entry("gpu-1")], [], f"fail: the response after SIGKILL differs: "
         f"{_DIFFERS}"),
        ("DK04", [entry()], [], "pass: back after 0.00 s"),
        ("DK05", [entry()], [], "pass: killed 3 times"),
        ("DK06", [entry()], _SHARED, "skip: the driver's devices can be shared"),
        ("DK06", [entry()], [], "pass: free after 0.0 s"),
        ("DK06", [entry(), entry(fails="no")], [], "fail: a device is not free, although its "
         "claim was deleted while the driver was down: NodePrepareResources failed for claim UID "
         "uid-1: no"),
    ],
)  # fmt: skip
def test_restarts(id_: str, answers: list[Any], results: list[Any], expected: str) -> None:
    run = Run(*answers, results=results)
    if "fails" in expected or "is not free" in expected:
        run.limits = attrs.evolve(LIMITS, recover_seconds=0)
    assert outcome(id_, run) == expected


@pytest.mark.parametrize(
    ("again", "left", "expected"),
    [
        (entry("gpu-0", "v/c=uid-0"), [], ""),
        (entry("gpu-0", "v/c=uid-0"), ["v/c=uid-0"], "CDI device v/c=uid-0 still exists after "
         "NodeUnprepareResources"),
        (entry("gpu-0", "v/c=all"), ["v/c=all"], ""),
        (entry("gpu-0", "v/c=uid-0", "v/c=all"), ["v/c=uid-0"], ""),
        (entry("gpu-1"), [], f"incomplete response after SIGKILL: {_DIFFERS}"),
    ],
)  # fmt: skip
def test_claim_is_complete_after_a_kill(again: Any, left: list[str], expected: str) -> None:
    run = Run(again, cdi=Cdi(left))
    [claim] = run.claims()
    with pytest.raises(Failed) if expected else contextlib.nullcontext() as raised:
        restarts._check_complete(run, claim, entry())
    assert not expected or str(raised.value) == expected
    if not expected:
        assert "resolved after SIGKILL during NodePrepareResources" in run.seen
        assert run.done()[-1] == "unprepare c0"


@pytest.mark.parametrize(
    ("id_", "one", "two", "first"),
    [
        ("DK09", "the previous version", "the new version", True),
        ("DK10", "the new version", "the previous version", False),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_versions(id_: str, one: str, two: str, first: bool, fails: bool) -> None:
    run = Run(entry(), *([error()] if fails else []), entry())
    versions: list[bool] = []
    run.start = lambda: versions.append(run.plugin.runs_previous)  # type: ignore[method-assign]
    run.launch = lambda *before, hook="": versions.append(run.plugin.runs_previous)  # type: ignore[method-assign, assignment, misc]
    text = f"{two} has unprepared a claim that {one} had prepared"
    assert outcome(id_, run) == (
        f"warn: {text}, but before that, a repeated NodePrepareResources failed: "
        "NodePrepareResources "
        "failed with INTERNAL: no"
        if fails
        else f"pass: {text}"
    )
    assert versions == [first, not first]
    assert [each for each in run.done() if "resolved" not in each] == [
        "prepare c0",
        "stop",
        f"registered 60 s after the start of {two}",
        "devices",
        "prepare c0",
        "unprepare c0",
        "prepare c1",
        "unprepare c1",
    ]


def test_dk07(tmp_path: Path) -> None:
    run = Run()
    run.kubelet.plugins_registry_dir = tmp_path / "registry"
    (tmp_path / "registry/x").mkdir(parents=True)
    assert outcome("DK07", run) == "pass: back after 1.2 s"
    assert not (tmp_path / "registry").exists()
    assert run.seen == [
        "start",
        "stop the kubelet",
        "kubelet.stop",
        "remove plugins_registry",
        "wait 0 s",
        "start the kubelet",
        "kubelet.start",
        "registered 60 s after plugins_registry was removed",
    ]


class Instances(Run):
    """Run in which a second instance of the driver starts."""

    def __init__(self, directory: Path, name: str, *connected: bool) -> None:
        super().__init__()
        self.directory, self.name = directory, name
        self.sockets = [bound(directory / "old")]
        self.connected = connected
        self.registers = True
        self.removes: Any = lambda: None
        self.plugin.stop = lambda process: (self.seen.append("stop"), self.removes())

    def launch(self, *before: str, hook: str = "") -> Any:
        self.seen.append(f"launch {self.plugin.pod_uid}")
        if self.name != "old":
            self.sockets = [*self.sockets, bound(self.directory / self.name)]

    def registered_names(self, since: Any) -> set[str]:
        return {DRIVER} if self.registers else set()

    def instances(self) -> list[Any]:
        return [SimpleNamespace(connected=each) for each in self.connected]


@pytest.mark.parametrize(
    ("name", "connected", "more", "expected"),
    [
        ("new", [True], {}, "pass: the second instance has unprepared a claim of the first "
         "instance"),
        ("old", [True], {}, "warn: both instances use the same sockets, so a rolling update "
         "interrupts the driver"),
        ("new", [True, True], {}, "fail: after the exit of the first instance, the kubelet has 2 "
         "registered instances: expected one that is connected; the first instance has left its "
         "socket old"),
        ("new", [False], {"gone": "old"}, "fail: after the exit of the first instance, the kubelet "
         "has 1 registered instance: expected one that is connected"),
        ("new", [True], {"gone": "new"}, "fail: the exit of the first instance removed a socket of "
         "the second instance"),
        ("new", [True], {"registers": False}, "warn: a second instance does not register while the "
         "first one runs"),
        ("new", [True], {"exits": True}, "warn: a second instance cannot start: exit status 1"),
    ],
)  # fmt: skip
def test_dk08(
    name: str, connected: list[bool], more: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    run = Instances(tmp_path, name, *connected)
    run.limits = attrs.evolve(LIMITS, recover_seconds=0)
    run.registers = more.get("registers", True)
    run.plugin.has_exited = more.get("exits", False)
    if gone := more.get("gone"):
        run.removes = lambda: (tmp_path / gone).unlink()
    assert outcome("DK08", run) == expected
    assert run.done()[1:4] == [
        "prepare c0",
        "start a second instance, of another pod",
        f"launch {restarts.POD_UIDS[1]}",
    ]
    if expected.startswith("pass"):
        assert [each for each in run.done() if each != "prepare c0"] == [
            "start",
            "start a second instance, of another pod",
            f"launch {restarts.POD_UIDS[1]}",
            "resolved after the start of a second instance",
            "SIGTERM to the first instance",
            "stop",
            "resolved after the exit of the first instance",
            "unprepare c0",
        ]


@pytest.mark.parametrize(
    ("files", "expected", "left"),
    [
        ({}, "skip: the driver has no files in its directory", {}),
        ({"a": b"", "c/d": b"12345", "b": b"12"}, "pass: unprepared after these files were "
         "damaged: b, d", {"a": b"", "c/d": b"12", "b": b"1"}),
    ],
)  # fmt: skip
def test_dk11(
    files: dict[str, bytes], expected: str, left: dict[str, bytes], tmp_path: Path
) -> None:
    run = Run()
    run.kubelet.root = tmp_path
    directory = tmp_path / "plugins" / DRIVER
    (directory / "c").mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    assert outcome("DK11", run) == expected
    assert {name: (directory / name).read_bytes() for name in left} == left
    if left:
        assert run.done()[3:] == [
            "launch",
            "registered 60 s after these files were damaged: b, d",
            "unprepare c0",
        ]


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (entry("gpu-1"), "pass: None"),
        (dra_v1.NodePrepareResourceResponse(), "fail: the response has 0 devices after a reboot, 1 "
         "before"),
    ],
)  # fmt: skip
def test_dk12(again: Any, expected: str, tmp_path: Path) -> None:
    run = Run(entry(), again)
    run.sockets = [bound(tmp_path / "a.sock")]
    run.directories.remove_files = lambda *where: run.seen.append(("remove", *where))  # type: ignore[method-assign]
    assert outcome("DK12", run) == expected
    assert not run.sockets[0].exists()
    done = [
        "start",
        "prepare c0",
        "reboot: SIGKILL, no files in /var/run/cdi, no sockets, another boot ID",
        "kill",
        "stop the kubelet",
        "kubelet.stop",
        ("remove", ["cdi"]),
        "new boot ID",
        "start the kubelet",
        "kubelet.start",
        "launch",
        "registered 60 s after a reboot",
        "devices",
        "prepare c0",
    ]
    if expected.startswith("pass"):
        done += ["resolved after a reboot", "unprepare c0"]
    assert run.done() == done


@pytest.mark.parametrize(
    ("running", "left", "status", "expected"),
    [
        (False, [], 0, "pass: 0.00 s"),
        (True, [], 0, "fail: the driver still runs 0 s after SIGTERM"),
    ],
)
def test_dl01(running: bool, left: list[str], status: int, expected: str) -> None:
    run = Run()
    run.plugin.process.is_running = running
    assert outcome("DL01", run) == expected
    assert run.seen == ["start", "SIGTERM", "signal 15"]


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (0, ""),
        (1, ": exit status 1; a driver in Go must call Helper.Stop before it exits, because "
         "log.Fatal and os.Exit skip deferred calls"),
    ],
)  # fmt: skip
def test_dl02(status: int, hint: str) -> None:
    run = Run()
    run.plugin.process.is_running, run.plugin.process.exit_status = False, status
    assert outcome("DL02", run) == "pass: None"
    run.sockets = [Path("/r/a.sock"), Path("/r/b.sock")]
    text = f"fail: a.sock is still in plugins_registry after SIGTERM{hint}"
    assert outcome("DL02", run) == text


@pytest.mark.parametrize(
    ("exited", "sockets", "ends", "left", "expected"),
    [
        (False, True, True, False, "pass: stopped 2 times"),
        (True, True, True, False, "skip DR01: the driver did not create a socket"),
        (False, False, True, False, "skip DR01: the driver did not create a socket"),
        (False, True, False, False, "fail: the driver still runs 0 s after SIGTERM 0.0 s after its "
         "first socket"),
        (False, True, True, True, "fail: a.sock is still in plugins_registry after SIGTERM 0.0 s "
         "after its first socket"),
    ],
)  # fmt: skip
def test_dl03(
    exited: bool, sockets: bool, ends: bool, left: bool, expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pauses: list[float] = []
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(sleep=pauses.append))
    run = Run()
    run.limits = attrs.evolve(LIMITS, early_stops=2)
    run.plugin.has_exited = exited
    path = Path("/r/a.sock")

    def launch(*before: str, hook: str = "") -> Any:
        run.plugin.process.is_running = True
        run.sockets = [path] if sockets else []

    def signalled(number: int) -> None:
        run.seen.append(int(number))
        run.plugin.process.is_running = not ends
        run.sockets = [path] if left else []

    run.launch = launch  # type: ignore[method-assign]
    run.plugin.process.send_signal = signalled
    assert outcome("DL03", run) == expected
    if expected.startswith("pass"):
        assert pauses == [0.0, 0.3]
        assert run.seen[2:] == [
            "SIGTERM 0.0 s after its first socket",
            15,
            "SIGTERM 0.3 s after its first socket",
            15,
        ]


@pytest.mark.parametrize(
    ("place", "content", "left", "expected"),
    [
        (None, "", False, "skip: the driver writes no device metadata"),
        (f"default_c0/{REQUEST}", '{"requests": []}', False, "pass: 1 file"),
        (f"default_c0/{REQUEST}", '{"requests": []}', True, "fail: F still exists "
         "after NodeUnprepareResources"),
        (f"default_c1/{REQUEST}", '{"requests": []}', False, "fail: metadata.json is "
         f"in default_c1/{REQUEST}: expected default_c0/{REQUEST}"),
        ("default_c0/x", '{"requests": []}', False, "fail: metadata.json is in default_c0/x: "
         f"expected default_c0/{REQUEST}"),
        (f"default_c0/{REQUEST}", "{}", False, "fail: metadata.json has no field named "
         "requests"),
        (f"default_c0/{REQUEST}", '["requests"]', False, "fail: metadata.json has no "
         "field named requests"),
        (f"default_c0/{REQUEST}", "{", False, "fail: invalid metadata.json: "
         "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)  # fmt: skip
def test_dl04(place: str | None, content: str, left: bool, expected: str, tmp_path: Path) -> None:
    run = Run()
    run.kubelet.root = tmp_path
    path = tmp_path / "plugins" / DRIVER / "dra-device-metadata" / (place or "") / "metadata.json"
    if place:
        path.parent.mkdir(parents=True)
        path.write_text(content)
    unprepare = run.unprepare
    run.unprepare = lambda *claims: (unprepare(*claims), left or path.unlink(missing_ok=True))  # type: ignore[method-assign]
    assert outcome("DL04", run).replace(str(path), "F") == expected


# -- registration and CDI files ----------------------------------------------------------------


def info(**more: Any) -> Any:
    return SimpleNamespace(
        **{"type": "DRAPlugin", "endpoint": "", "supported_versions": ["v1.DRAPlugin"]} | more
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (info(), info(), "pass: None"),
        (info(endpoint="/a"), info(endpoint="/a"), "pass: None"),
        (info(type="x"), info(type="x"), "fail: invalid type 'x' in GetInfo: expected DRAPlugin"),
        (info(), info(endpoint="/a"), "fail: two calls of GetInfo have different responses"),
        (info(endpoint="a"), info(endpoint="a"), "fail: invalid endpoint 'a' in GetInfo: expected "
         "an absolute path"),
    ],
)  # fmt: skip
def test_dr02(first: Any, second: Any, expected: str) -> None:
    run, left = Run(), iter([first, second])
    run.info = lambda: next(left)  # type: ignore[method-assign]
    assert outcome("DR02", run) == expected


def test_dr03() -> None:
    run = Run()
    versions = ["v1.DRAPlugin", "other", "v1beta1.DRAPlugin"]
    run.info = lambda: info(supported_versions=versions)  # type: ignore[method-assign]
    assert outcome("DR03", run) == "pass: v1.DRAPlugin, v1beta1.DRAPlugin"
    assert run.seen == ["unprepare unknown"] * 2
    run.slow = error("UNIMPLEMENTED")
    assert outcome("DR03", run) == (
        "fail: supported_versions has v1.DRAPlugin, but NodePrepareResources failed with "
        "UNIMPLEMENTED: no"
    )


_REJECTION = "rejected by the conformance suite"


@pytest.mark.parametrize(
    ("rejection", "once", "exited", "status", "expected"),
    [
        (_REJECTION, False, False, None, "pass: registered 1.2 s after the kubelet's restart"),
        ("other", False, False, None, "skip DR01: the driver did not register"),
        ("other", True, False, None, "pass: registered 1.2 s after the kubelet's restart"),
        (_REJECTION, True, True, 0, "fail: the rejected driver exited with status 0, expected "
         "non-zero"),
        (_REJECTION, True, True, 1, "pass: exits with an error, which is accepted: exit status 1"),
    ],
)  # fmt: skip
def test_dr04(rejection: str, once: bool, exited: bool, status: Any, expected: str) -> None:
    run = Run()
    run.rejection = lambda: rejection  # type: ignore[method-assign]
    run.plugin.has_exited_once, run.plugin.has_exited = once, exited
    run.plugin.process.exit_status = status
    assert outcome("DR04", run) == expected
    assert run.seen[2:4] == [("set", "reject-notification", {"text": _REJECTION}), "launch"]
    if not expected.startswith("skip"):
        assert run.seen[4] == "clear"
    if "registered" in expected:
        assert run.seen[5:] == [
            "restart the kubelet",
            "kubelet.restart",
            "registered 60 s after a rejected registration",
        ]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({DRIVER: 2}, "pass: slices after 2.2 s"),
        ({DRIVER: 0}, "pass: registered"),
        ({}, "pass: registered"),
    ],
)
def test_dr06(counts: dict[str, int], expected: str, tmp_path: Path) -> None:
    run = Run()
    run.stage.device_counts = counts
    run.kubelet.root = tmp_path
    run.kubelet.plugins_registry_dir = tmp_path / "a/registry"
    assert outcome("DR06", run) == expected
    assert (tmp_path / "a/registry").is_dir() and (tmp_path / "plugins").is_dir()
    after = "after the start of the API server"
    assert run.seen[:9] == [
        "api.stop",
        "stop the API server",
        "launch",
        "api.start",
        "start the API server",
        "start the kubelet",
        "kubelet.start",
        f"registered 60 s {after}",
        *([f"slices {after}"] if "slices" in expected else []),
    ]


@pytest.mark.parametrize(
    ("id_", "answers", "cdi", "expected"),
    [
        ("DF01", [entry("gpu-0", "a", "b", "a")], Cdi(), "pass: a, b"),
        ("DF01", [entry()], Cdi(), "skip: the response has no CDI devices"),
        ("DF02", [entry()], Cdi(), "pass: 1 file"),
        ("DF03", [entry()], Cdi(), "skip: the responses have no CDI devices"),
        ("DF03", [entry(), entry("gpu-0", "a")], Cdi(), "pass: None"),
        ("DF03", [entry("gpu-0", "a"), entry()], Cdi(), "pass: None"),
        ("DF04", [entry("gpu-0", "a")], Cdi([], []), "pass: None"),
        ("DF04", [entry("gpu-0", "a")], Cdi(["a"], ["a"]), "skip: NodePrepareResources adds no CDI "
         "devices"),
        ("DF04", [entry("gpu-0", "b", "a")], Cdi([], ["a", "b"]), "fail: CDI device a still exists "
         "after NodeUnprepareResources"),
        ("DF05", [entry()], Cdi(), "skip: the response has no CDI devices"),
        ("DF05", [entry("gpu-0", "a")], Cdi(), "pass: None"),
    ],
)  # fmt: skip
def test_cdi(id_: str, answers: list[Any], cdi: Cdi, expected: str) -> None:
    run = Run(*answers, cdi=cdi)
    assert outcome(id_, run) == expected
    prepared = sum(str(each).startswith("prepare") for each in run.seen)
    assert sum(str(each).startswith("unprepare") for each in run.seen) >= prepared - 1
    if expected.startswith("pass") and id_ in ("DF01", "DF03", "DF05"):
        run = Run(*[entry("gpu-0", "a")] * 3, cdi=cdi)
        run.unresolved = ["no device"]
        assert outcome(id_, run).startswith("fail: no device")


def test_cdi_files_are_valid() -> None:
    cdi = Cdi()
    cdi.wrong = ["first", "second"]
    assert outcome("DF02", Run(cdi=cdi)) == "fail: first"
    cdi.wrong, cdi.found = [], []
    assert outcome("DF02", Run(cdi=cdi)) == "skip: the driver has no CDI files"


def test_entries_are_compared_without_their_order() -> None:
    made = dra_v1.NodePrepareResourceResponse()
    for device in ("b", "a"):
        made.devices.add(
            pool_name="p",
            device_name=device,
            share_id="s",
            request_names=["y", "x"],
            cdi_device_ids=["d", "c"],
        )
    rows = [("p", device, "s", ("x", "y"), ("c", "d")) for device in "ab"]
    assert shown(made) == rows
    assert shown(made, cdi=False) == [(*row[:4], ()) for row in rows]


@pytest.mark.parametrize(
    ("now", "missing", "expected"),
    [
        ([slice_("a", "b")], "", "pass: 0.0 s"),
        ([slice_("a", "b"), slice_("c", name="t")], "", "fail: the published devices differ after "
         "the hooks break-device and recover-device: new mock/c, missing none"),
        ([slice_("a", "b")], "no", "fail: no"),
    ],
)  # fmt: skip
def test_ds12_compares_the_slices_after_the_hooks(
    now: list[Any], missing: str, expected: str
) -> None:
    run = Run()
    run.found = [[slice_("a", "b")], [slice_("a", "b")], [slice_("a")], now]

    def recovered(name: str, id_: str = "") -> None:
        run.seen.append((name, id_))
        if name == "recover-device":
            run.missing = missing

    run.hook = recovered  # type: ignore[method-assign]
    assert outcome("DS12", run) == expected
    assert run.seen == [("break-device", "b"), ("recover-device", "b")]


@pytest.mark.parametrize(
    ("exited", "requests", "expected"),
    [(False, 1, False), (True, 1, True), (False, 2, True), (True, 2, True)],
)
def test_ds08_waits_for_a_request_or_the_exit(exited: bool, requests: int, expected: bool) -> None:
    run, waits = Run(), []
    counts = iter([1])
    run.server.requests.total = lambda: next(counts, requests)
    run.until = lambda condition, seconds: waits.append((condition, seconds))  # type: ignore[method-assign]
    run.limits = attrs.evolve(LIMITS, start_seconds=30, away_seconds=5)
    assert outcome("DS08", run) == "pass: 2.2 s"
    run.plugin.has_exited = exited
    assert [condition() for condition, _ in waits] == [expected, exited]
    assert [seconds for _, seconds in waits] == [30, 5]


def test_dr06_waits_for_an_exit_without_an_api_server(tmp_path: Path) -> None:
    run, waits = Run(), []
    run.kubelet.root = run.kubelet.plugins_registry_dir = tmp_path
    run.until = lambda condition, seconds: waits.append((condition, seconds))  # type: ignore[method-assign]
    run.limits = attrs.evolve(LIMITS, away_seconds=5)
    assert outcome("DR06", run) == "pass: slices after 2.2 s"
    [(has_exited, seconds)] = waits
    assert (has_exited(), seconds) == (False, 5)


# -- NRI ---------------------------------------------------------------------------------------


def nri_run(*plugins: int, containers: Any, report: str = "") -> Run:
    """Return a run whose NRI runtime has these plugins and containers."""
    left, made, pods = list(plugins), iter(containers), iter(["one", "two"])
    run = Run()
    run.limits = attrs.evolve(LIMITS, recover_seconds=0)
    run.stage.nri = SimpleNamespace(
        plugins=lambda: [0] * (left.pop(0) if len(left) > 1 else left[0]),
        path=Path("/r/nri.sock"),
        container=lambda uid, name: (run.seen.append(f"{name} of {uid}"), next(made))[1],
    )
    run.stage.nri_report = report
    run.admit = lambda claim=None: (  # type: ignore[method-assign, assignment, misc]
        run.seen.append("admit" if claim is None else f"admit {claim['metadata']['name']}"),
        next(pods),
    )[1]
    return run


def cpus(cpus: str = "", mems: str = "") -> Any:
    return SimpleNamespace(cpus=cpus, mems=mems)


@pytest.mark.parametrize(
    ("plugins", "report", "expected"),
    [
        ([1], "", "pass: with a claim: cpus 0-1, mems 1; without: cpus all, mems all"),
        ([1, 0], "why", "fail: the NRI plugin was disconnected: why"),
        ([0], "why", "fail: no NRI plugin is connected 0 s after its start: why"),
        ([0], "", "fail: no NRI plugin is connected 0 s after its start: nothing connected to "
         "nri.sock"),
    ],
)  # fmt: skip
def test_dn01(plugins: list[int], report: str, expected: str) -> None:
    run = nri_run(*plugins, containers=[cpus("0-1", "1"), cpus()], report=report)
    assert outcome("DN01", run) == expected
    done = ["admit c0", "admit", "main of one", "main of two", "terminate two", "terminate one"]
    assert run.done() == ["start", *(done if plugins[0] else [])]


@pytest.mark.parametrize(
    ("plugins", "after", "expected"),
    [
        ([1], cpus("0-1"), "pass: cpus 0-1, mems all"),
        ([1], cpus("0-1", "1"), "fail: Synchronize has changed the container: cpus 0-1, mems all "
         "before, cpus 0-1, mems 1 after"),
        ([1, 0], cpus("0-1"), "fail: no NRI plugin is connected 0 s after SIGKILL: nothing "
         "connected to nri.sock"),
    ],
)  # fmt: skip
def test_dn02(plugins: list[int], after: Any, expected: str) -> None:
    run = nri_run(*plugins, containers=[cpus("0-1"), after])
    assert outcome("DN02", run) == expected
    done = ["start", "admit c0", "main of one", "SIGKILL", "kill", "relaunch after SIGKILL"]
    end = ["main of one", "terminate one"] if len(plugins) == 1 else []
    assert run.done() == done + end
