"""Recognition, options and environment of drivers under test."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import grpc
import pytest

from devicemanager.cli import main
from devicemanager.conformance import (
    FORMS,
    CheckError,
    Hardware,
    Outcome,
    PluginUnderTest,
    Profile,
    Report,
    Verdict,
    run,
    write,
)
from devicemanager.conformance.client import CallFailed
from devicemanager.conformance.drivers import (
    DRIVERS,
    DriverLimits,
    DriverUnderTest,
    driver_checks,
    is_driver,
    recognition,
)
from devicemanager.conformance.drivers.checks import health
from devicemanager.conformance.drivers.claims import allocate, published
from devicemanager.conformance.drivers.driver_under_test import PLACEHOLDERS, VARIABLES
from devicemanager.conformance.drivers.run import DriverRun
from devicemanager.conformance.drivers.stage import DriverStage
from devicemanager.conformance.outcomes import Failed, Skipped
from devicemanager.conformance.registry import selected
from devicemanager.conformance.reports.text import explain
from devicemanager.core.topology import NumaTopology
from devicemanager.events.calls import Mark
from devicemanager.kubelet.settings import Settings
from protos import drahealth_v1
from tests.conformance import driver_matrix, matrix
from tests.paths import ROOT

_SETTINGS = Settings(durability="process")
_LIMITS = DriverLimits(settle_seconds=0.2)
_SLEEPING = (sys.executable, "-c", "import time; time.sleep(600)")


def _program(under_test: PluginUnderTest) -> PluginUnderTest:
    return PluginUnderTest(command=under_test.command, env=under_test.env)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("program", "expected"), [(driver_matrix.driver(), True), (matrix.plugin(), False)]
)
def test_programs_are_recognized_by_what_they_register(
    program: PluginUnderTest, expected: bool
) -> None:
    assert is_driver(_program(program), limits=_LIMITS, settings=_SETTINGS) is expected


def test_placeholder_of_a_driver_is_recognized_without_a_start() -> None:
    program = PluginUnderTest(command=["/nowhere", "--kubeconfig={kubeconfig}"])
    assert is_driver(program, limits=_LIMITS, settings=_SETTINGS)


@pytest.mark.timeout(60)
def test_driver_with_directories_of_devices_is_recognized(tmp_path: Path) -> None:
    for hardware in (Hardware(dev=tmp_path), Hardware(sys=tmp_path)):
        program = attrs.evolve(_program(driver_matrix.driver()), hardware=hardware)
        assert is_driver(program, limits=_LIMITS, settings=_SETTINGS)


def test_program_with_what_drivers_do_not_get_is_a_plugin(tmp_path: Path) -> None:
    for options in ({"resources": ["a.b/c"]}, {"hardware": Hardware(cdi=tmp_path)}):
        program = PluginUnderTest(command=["/nowhere"], **options)  # type: ignore[arg-type]
        assert not is_driver(program, limits=_LIMITS, settings=_SETTINGS)


_DIRECTORY = 'test -d "$1" || { echo "$1 must exist"; exit 1; }; sleep 100'


@pytest.mark.parametrize(
    ("shell", "outcome", "seen"),
    [
        # kubeletplugin exits without the directory, which exists on a node.
        (_DIRECTORY, Outcome.FAIL, "d.v.com is not registered 0.2 s after the start of the API "),
        (
            "echo no server; exit 3",
            Outcome.WARN,
            "the driver exited without an API server: exit status 3. It printed: no server",
        ),
    ],
)
def test_driver_without_an_api_server(shell: str, outcome: Outcome, seen: str) -> None:
    driver = DriverUnderTest(
        command=["sh", "-c", shell, "sh", "{registrar_dir}"], resources=("d.v.com",)
    )
    limits = attrs.evolve(_LIMITS, away_seconds=5.0, recover_seconds=0.2)
    checks = selected(DRIVERS.checks(), DRIVERS.families, ["DR06"], [])
    [verdict] = run(driver, checks, limits=limits, settings=_SETTINGS, suite=DRIVERS).verdicts
    assert verdict.outcome is outcome, verdict.seen
    assert verdict.seen.startswith(seen)
    assert any(line.text == "start the driver" for line in verdict.timeline)
    assert f"{outcome.value}: {seen}" in explain(verdict)
    assert not re.search(r"(?<!device-)plugin(?!s)", explain(verdict))


def test_driver_that_does_not_come_back() -> None:
    driver = DriverUnderTest(command=_SLEEPING, resources=("d.v.com",))
    stage = DriverStage(driver, _LIMITS, _SETTINGS)
    try:
        found = DriverRun(stage, ("d.v.com",), "seed")
        found.start_kubelet()
        since = found.kubelet.mark()
        found.launch()
        with pytest.raises(Failed, match="the variables KUBECONFIG"):
            found.wait_registered(since, 0.0, "its start")
        found._registered_before = True
        with pytest.raises(
            Failed,
            match=r"^d\.v\.com is not registered 0 s after the removal: "
            r"it has not created its socket in /.*/plugins_registry again$",
        ):
            found.wait_registered(since, 0.0, "the removal")
    finally:
        stage.close()


def test_program_that_registers_nothing_gets_advice() -> None:
    program = PluginUnderTest(command=_SLEEPING)
    soon = attrs.evolve(_LIMITS, start_seconds=0.3)
    with pytest.raises(
        CheckError, match=r"nothing called Register at .*kubelet\.sock; only DEVICE"
    ):
        is_driver(program, limits=soon, settings=_SETTINGS)


def test_driver_that_does_not_register_fails_dr01() -> None:
    silent = DriverUnderTest(command=_SLEEPING, resources=[driver_matrix.DRIVER])
    checks = selected(DRIVERS.checks(), DRIVERS.families, ["DR01", "DC01"], ())
    soon = DriverLimits(start_seconds=0.3)
    report = run(silent, checks, limits=soon, settings=_SETTINGS, suite=DRIVERS)
    first, second = report.verdicts
    assert first.outcome is Outcome.FAIL and "no socket in /" in first.seen
    assert second.outcome is Outcome.SKIP and second.cause == "DR01"
    assert report.profile_text == "no profile passed: DR01 failed"


def test_invalid_drivers_are_rejected() -> None:
    with pytest.raises(CheckError, match="invalid driver name 'GPU'"):
        DriverUnderTest(command=["x"], resources=["GPU"])
    with pytest.raises(CheckError, match="the command of --previous is empty"):
        DriverUnderTest(command=["x"], previous=" ")


_SLICES = [
    {
        "metadata": {"name": f"slice-{generation}"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n",
            "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": name, "allowMultipleAllocations": True} for name in names],
        },
    }
    for generation, names in ((1, ["old"]), (2, ["a", "b"]))
]


def test_claims_use_devices_of_the_newest_generation() -> None:
    assert published(_SLICES) == [("p", "a"), ("p", "b")]
    results = allocate(_SLICES, "n", 5)
    assert [each["device"] for each in results] == ["a", "b"]
    assert len({each["shareID"] for each in results}) == 2
    assert allocate([], "n", 5) == []


@pytest.fixture
def private_mounts() -> None:
    """Skip where private mounts are not possible."""
    command = [sys.executable, "-m", "devicemanager", "exec", "--root", "/tmp", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        pytest.skip(done.stderr.strip())


@pytest.mark.timeout(120)
def test_private_root_and_reboot(private_mounts: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The driver has the paths of a node, and the API server that of a pod."""
    words = ["--private-root", "--reboot", "--only", "DF01", "--only", "DK12", "-o", "json"]
    # The in-cluster configuration is used only without KUBECONFIG.
    command = [sys.executable, str(driver_matrix.PROGRAM)]
    options = [f"--env=PYTHONPATH={ROOT}", "--env=KUBECONFIG=", "--limit", "settle_seconds=0.2"]
    assert main(["check", *words, *options, "--", *command]) == 0, capsys.readouterr().out
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [each["outcome"] for each in report["checks"]] == ["pass", "pass"]
    assert report["resources"] == [driver_matrix.DRIVER]


def test_driver_of_an_image_has_the_directories_of_a_node(tmp_path: Path) -> None:
    under_test = DriverUnderTest(command=["driver"], rootfs=tmp_path)
    assert under_test.is_private
    stage = DriverStage(under_test, _LIMITS, _SETTINGS)
    try:
        binds = {bind.target: bind.source for bind in stage.plugin._binds()}
    finally:
        stage.close()
    assert binds[Path("/")] == tmp_path
    assert binds[Path("/proc")] == Path("/proc")
    assert binds[stage.directory] == stage.directory
    assert binds[Path("/var/lib/kubelet")] == stage.kubelet.root


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--driver", "--resource", "a.b/c"], "--resource is for plugins: omit it for a DRA"),
        (["--driver", "--numa", "0"], "--numa is for plugins"),
        (["--rootfs", "/nowhere"], "--rootfs: /nowhere does not exist"),
        (["--driver", "--kubelet-version", "all"], "--kubelet-version all is for plugins"),
        (["--driver", "--kubelet-version", "1.30"], "kubelet 1.30 has no Dynamic Resource Alloc"),
        (["--only", "DX01"], "unknown check 'DX01': use an ID such as DK01, or a family: DR, DC"),
        (["--reboot", "--only", "R01"], "unknown check 'R01'"),
        (["--driver", "--limit", "x=1"], "unknown limit 'x'"),
    ],
)
def test_invalid_options_are_an_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words, "--", "x"]) == 2
    assert message in capsys.readouterr().err


def test_list_prints_the_checks_of_drivers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list", "--driver", "--skip", "DC"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "DR01" and lines[-1].split()[0] == "DN02"
    assert not any(line.startswith("DC") for line in lines)


@pytest.mark.parametrize("form", FORMS)
def test_reports_are_about_a_driver(form: str, tmp_path: Path) -> None:
    checks = driver_checks()
    verdicts = tuple(Verdict(each, Outcome.PASS) for each in checks)
    driver = DriverUnderTest(command=["driver"])
    report = Report(driver, verdicts, ("gpu.vendor.com",), 1, "1.37", 3.0, DRIVERS)
    assert report.profile is Profile.COMPLETE
    assert [title for title, _ in report.by_family()] == list(DRIVERS.families.values())
    write(report, form, tmp_path / "report")
    text = (tmp_path / "report").read_text()
    heading = {
        "html": "<h1>DRA driver conformance: ",
        "markdown": "## DRA driver conformance: ",
        "badge": "<title>DRA driver conformance: profile complete passed",
    }
    assert heading.get(form, "DK12") in text


def test_reconnection_is_not_a_registration() -> None:
    """After SIGKILL, the kubelet connects to the old path before the driver is registered again."""
    events = {
        "driver-registered": [SimpleNamespace(number=3, resource="old.example.com")],
        "driver-connected": [SimpleNamespace(number=9, resource="old.example.com")],
    }
    seen: Any = SimpleNamespace(kubelet=SimpleNamespace(events=SimpleNamespace(recent=events.get)))
    assert DriverRun.registered_names(seen, Mark(2, 0)) == {"old.example.com"}
    assert DriverRun.registered_names(seen, Mark(5, 0)) == set()


def _dh03(
    monkeypatch: pytest.MonkeyPatch,
    *devices: tuple[int, int],
    after: float = 5.0,
    error: Exception | None = None,
) -> str | None:
    """Run DH03 with a driver whose stream has a second report, or ends with an error, ``after``
    seconds after the first report.

    Each device has a health and a timeout.
    """
    report = drahealth_v1.NodeWatchResourcesResponse(
        devices=[
            drahealth_v1.DeviceHealth(health=each, health_check_timeout_seconds=timeout)
            for each, timeout in devices
        ]
    )

    def reports() -> Iterator[drahealth_v1.NodeWatchResourcesResponse]:
        yield report
        if error is not None:
            raise error
        yield report

    client = SimpleNamespace(health=lambda *_: nullcontext(reports()))
    run: Any = SimpleNamespace(
        info=lambda: SimpleNamespace(supported_versions=["v1.DRAResourceHealth"]),
        limits=DriverLimits(),
        client=lambda: nullcontext(client),
    )
    seconds = itertools.count(0.0, after)
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    return health.dh03.run(run)


_UNKNOWN, _HEALTHY, _UNHEALTHY, _LATER = 0, 1, 2, 3
"""Health of devices. The kubelet treats values that it does not know, such as ``_LATER``, as
unknown."""


@pytest.mark.parametrize(
    "devices",
    [
        [(_HEALTHY, 5), (_UNHEALTHY, 60)],
        # The kubelet's default of 30 s.
        [(_HEALTHY, 0), (_UNHEALTHY, -5)],
        # The health of these two devices cannot expire.
        [(_HEALTHY, 60), (_UNKNOWN, 1), (_LATER, 1)],
    ],
)
def test_dh03_passes_a_report_before_the_timeout(
    devices: Sequence[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _dh03(monkeypatch, *devices) == "repeated after 5.0 s"


def test_dh03_fails_a_report_after_the_shortest_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failed, match=r"^the second report came after 5 s, the timeout is 4 s$"):
        _dh03(monkeypatch, (_HEALTHY, 60), (_UNHEALTHY, 4))


def test_dh03_is_skipped_if_no_health_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Skipped, match=r"^the first report has no device with a known health$"):
        _dh03(monkeypatch, (_UNKNOWN, 1), (_LATER, 1))


@pytest.mark.parametrize(
    ("code", "waited", "timeout", "outcome"),
    [
        ("DEADLINE_EXCEEDED", 45, 46, Skipped),
        ("DEADLINE_EXCEEDED", 45, 45, Failed),
        # The first report came late, so the stream ended soon after it.
        ("DEADLINE_EXCEEDED", 1, 30, Skipped),
        ("UNAVAILABLE", 1, 120, Failed),
    ],
)
def test_dh03_does_not_wait_for_a_report_that_expires_later(
    code: str,
    waited: float,
    timeout: int,
    outcome: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = CallFailed("NodeWatchResources", grpc.RpcError("no"))
    error.code = code
    with pytest.raises(outcome):
        _dh03(monkeypatch, (_HEALTHY, timeout), after=waited, error=error)


def test_every_driver_gets_the_variables_of_the_example_driver() -> None:
    assert VARIABLES == {
        "KUBECONFIG": "{kubeconfig}",
        "NODE_NAME": "{node_name}",
        "KUBELET_REGISTRAR_DIRECTORY_PATH": "{registrar_dir}",
        "KUBELET_PLUGINS_DIRECTORY_PATH": "{plugins_dir}",
        "CDI_ROOT": "{cdi_dir}",
        "POD_UID": "{pod_uid}",
    }
    for text in VARIABLES.values():
        assert text.strip("{}") in PLACEHOLDERS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"resources": "a.b"}, "invalid drivers 'a.b': expected a list of names"),
        ({"previous": []}, "the command of --previous is empty"),
        ({"rootfs": "/no"}, "--rootfs: /no does not exist"),
        ({"rootfs": "/dev/null"}, "--rootfs: /dev/null is not a directory"),
    ],
)
def test_invalid_options_of_drivers(options: Any, text: str) -> None:
    with pytest.raises(CheckError) as raised:
        DriverUnderTest(command=["x"], **options)
    assert str(raised.value) == text


def test_options_of_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverUnderTest(command=["x"])
    assert (driver.previous, driver.rootfs, driver.is_private) == (None, None, False)
    assert [driver.has_option(name) for name in ("previous", "reboot", "nri")] == [False] * 3
    assert DriverUnderTest(command=["x"], previous="a 'b c'").previous == ("a", "b c")
    assert DriverUnderTest(command=["x"], previous=["a b", "c"]).previous == ("a b", "c")
    monkeypatch.chdir(tmp_path.parent)
    rootfs = DriverUnderTest(command=["x"], rootfs=tmp_path.name)
    assert (rootfs.rootfs, rootfs.is_private) == (tmp_path, True)
    for private in (
        {"private_root": True},
        {"nri": True},
        {"hardware": Hardware(dev=tmp_path)},
    ):
        made = DriverUnderTest(command=["x"], **private)
        assert made.is_private and made.has_node_paths
        assert made.advice == "the driver should use /var/lib/kubelet/plugins_registry"
    for words in ({"command": ["{nri_socket}"]}, {"command": ["x"], "env": {"A": "{nri_socket}"}}):
        assert not DriverUnderTest(nri=True, **words).is_private
    for words in ({"command": ["{root}"]}, {"command": ["x"], "env": {"A": "/{cdi_dir}"}}):
        assert DriverUnderTest(**words).advice == (
            "the driver should use the directories from its command or environment"
        )
    assert driver.advice == (
        "only the variables KUBECONFIG, NODE_NAME, KUBELET_REGISTRAR_DIRECTORY_PATH, "
        "KUBELET_PLUGINS_DIRECTORY_PATH, CDI_ROOT, POD_UID name the directories: use placeholders "
        "such as {registrar_dir} in the command, or --private-root if the paths are fixed"
    )


def test_recognition_passes_on_all_options_and_closes_its_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    closed: list[str] = []

    class Opened:
        def close(self) -> None:
            closed.append("closed")

    stage = Opened()
    monkeypatch.setattr(recognition, "DriverStage", lambda *words: opened.append(words) or stage)
    program = PluginUnderTest(
        command=["p", "x"],
        env={"A": "1"},
        cwd=tmp_path,
        at_node_paths=True,
        hardware=Hardware(dev=tmp_path),
        restart="always",
        hooks={"prepare": "true"},
    )
    for found in (True, False, ValueError("no")):

        def registers(plugin: Any, stage: Any, limits: Any, found: Any = found) -> bool:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(recognition, "_registers_as_driver", registers)
        try:
            assert is_driver(program, limits=_LIMITS, settings=_SETTINGS) is found
        except ValueError:
            assert isinstance(found, ValueError)
    assert closed == ["closed"] * 3
    driver = opened[0][0]
    assert opened[0][1:] == (_LIMITS, _SETTINGS, None)
    assert driver == DriverUnderTest(
        command=program.command,
        env=program.env,
        cwd=program.cwd,
        private_root=True,
        hardware=program.hardware,
        restart="always",
        hooks=program.hooks,
    )


@pytest.mark.parametrize(
    ("options", "placeholder"),
    [
        ({"resources": ["a.b/c"]}, False),
        ({"hardware": Hardware(numa=NumaTopology.up_to(0))}, False),
        *[({"env": {"A": f"-{{{name}}}-"}}, True) for name in PLACEHOLDERS],
    ],
)
def test_options_and_placeholders_decide_without_a_start(
    options: Any, placeholder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognition, "DriverStage", None)
    program = PluginUnderTest(command=["/nowhere"], **options)
    assert is_driver(program, limits=_LIMITS, settings=_SETTINGS) is placeholder


def test_names_of_a_suite_of_drivers() -> None:
    assert DRIVERS.heading == "DRA driver conformance"
    assert (DRIVERS.first, DRIVERS.restarts, DRIVERS.registration) == ("DR01", "DK", "DR")


_LEAST = {
    Profile.CORE: {"DR": 3, "DC": 9, "DF": 3, "DS": 4},
    Profile.RESILIENT: {"DK": 3, "DL": 1},
    Profile.COMPLETE: {"DC": 12, "DK": 5, "DS": 6, "DL": 3},
}
"""Checks that a driver must at least have been through for a profile, as reports demand."""


@pytest.mark.parametrize(
    ("profile", "family"),
    [(profile, family) for profile, families in _LEAST.items() for family in families],
)
@pytest.mark.parametrize("fewer", [0, 1])
def test_profile_needs_checks_that_were_carried_out(
    profile: Profile, family: str, fewer: int
) -> None:
    count = _LEAST[profile][family] - fewer
    verdicts = []
    for check in driver_checks():
        # Those of this family and profile are skipped, except for the first ones.
        is_one = check.family == family and check.belongs_to(profile)
        skipped = is_one and count <= 0
        count -= is_one
        verdicts.append(Verdict(check, Outcome.SKIP if skipped else Outcome.PASS, "", 1.0))
    driver = DriverUnderTest(command=["x"])
    made = Report(driver, tuple(verdicts), ("d",), 1, "1.37", 3.0, DRIVERS)
    few = f"too few checks of {DRIVERS.families[family]} were carried out"
    number = _LEAST[profile][family]
    text = f"{few}: {number - 1}, at least {number} needed"
    assert made.obstacle(profile) == (text if fewer else "")
