"""A container's settings from plugins with and without a response."""

import subprocess
from pathlib import Path

import attrs
import pytest

from devicemanager.core import runoptions
from devicemanager.core.ids import ContainerName, DeviceId, PodUid, ResourceName
from devicemanager.core.ledger import AllocatedDevices
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet import container_runs
from devicemanager.kubelet.pods.options import CdiRules, merged_options
from devicemanager.kubelet.settings import Settings
from devicemanager.kubelet.wire.settings import settings_to_bytes
from devicemanager.sandbox.bundling import Bundle

SAYS, SILENT = ResourceName("a.com/says"), ResourceName("b.com/silent")
SETTINGS = ContainerSettings(envs={"A": "1"})


def holding(response: bytes | None) -> AllocatedDevices:
    return AllocatedDevices({-1: (DeviceId("d"),)}, response)


def test_empty_response_adds_nothing() -> None:
    holdings = {SAYS: holding(settings_to_bytes(SETTINGS)), SILENT: holding(b"")}
    assert merged_options(holdings) == runoptions.merge(
        {SAYS: SETTINGS, SILENT: ContainerSettings()}
    )
    nothing = {SAYS: holding(None), SILENT: holding(b"")}
    assert merged_options(nothing) == runoptions.merge({SILENT: ContainerSettings()})


CDI = ContainerSettings(cdi_devices=("v.com/gpu=1", "v.com/gpu=0"), annotations={"b": "plugin"})
POD, MAIN = PodUid("u-1"), ContainerName("main")
KEY = "cdi.k8s.io/devicemanager_u-1-main"


def held_with(settings: ContainerSettings) -> dict[ResourceName, AllocatedDevices]:
    return {SAYS: holding(settings_to_bytes(settings))}


@pytest.mark.parametrize(
    ("version", "uses", "annotates"),
    [
        ("1.27", False, False),
        ("1.28", False, False),
        ("1.29", True, True),
        ("1.31", True, True),
        ("1.32", True, False),
    ],
)
def test_cdi_rules_of_kubelet_versions(version: str, uses: bool, annotates: bool) -> None:
    behaviour = Settings(kubelet_version=version).behaviour
    assert (behaviour.uses_cdi, behaviour.annotates_cdi) == (uses, annotates)
    rules = CdiRules.of(behaviour)
    assert (rules.uses, rules.annotates) == (uses, annotates)


def test_kubelet_without_cdi_ignores_cdi_devices() -> None:
    options = CdiRules(uses=False).options(held_with(CDI), POD, MAIN)
    assert options == attrs.evolve(merged_options(held_with(CDI)), cdi_devices=())
    assert options.annotations == {"b": "plugin"}


def test_annotation_names_the_cdi_devices_in_order() -> None:
    merged = merged_options(held_with(CDI))
    assert CdiRules().options(held_with(CDI), POD, MAIN) == merged
    options = CdiRules(annotates=True).options(held_with(CDI), POD, MAIN)
    assert list(options.annotations.items()) == [
        ("b", "plugin"),
        (KEY, "v.com/gpu=0,v.com/gpu=1"),
    ]
    assert attrs.evolve(options, annotations=merged.annotations) == merged
    without = attrs.evolve(CDI, cdi_devices=())
    assert CdiRules(annotates=True).options(held_with(without), POD, MAIN) == merged_options(
        held_with(without)
    )


def test_annotation_of_a_plugin_has_precedence_over_the_kubelets() -> None:
    own = attrs.evolve(CDI, annotations={KEY: "mine"})
    assert CdiRules(annotates=True).options(held_with(own), POD, MAIN).annotations == {KEY: "mine"}


def test_settings_are_merged_later_only_if_the_rules_change_them() -> None:
    held = {MAIN: held_with(CDI)}
    assert CdiRules().merging(held, POD, MAIN) is None
    for rules in (CdiRules(uses=False), CdiRules(annotates=True)):
        merging = rules.merging(held, POD, MAIN)
        assert merging is not None
        assert merging() == rules.options(held[MAIN], POD, MAIN)
        nothing = rules.merging(held, POD, ContainerName("other"))
        assert nothing is not None and nothing() == runoptions.RunOptions()


@pytest.mark.parametrize(
    ("pod", "container", "names", "problem"),
    [
        ("u-1", "main", ("v.com/gpu=0",), ""),
        ("u-1", "main", (), ""),
        (
            "u" * 45,
            "main",
            ("v.com/gpu=0",),
            f"devicemanager_{'u' * 45}-main has more than 63 characters",
        ),
        (
            "u/1",
            "main",
            ("v.com/gpu=0",),
            "devicemanager_u/1-main is not a valid annotation name",
        ),
        ("u-1", "main", ("v.com/gpu=0", "x", "y"), "'x' is not a qualified CDI name"),
    ],
)
def test_names_that_an_annotation_cannot_have(
    pod: str, container: str, names: tuple[str, ...], problem: str
) -> None:
    options = attrs.evolve(runoptions.RunOptions(), cdi_devices=names)
    uid, name = PodUid(pod), ContainerName(container)
    assert CdiRules(annotates=True).problem(options, uid, name) == problem
    assert CdiRules().problem(options, uid, name) == ""
    if problem:
        held = held_with(ContainerSettings(cdi_devices=names))
        assert CdiRules(annotates=True).options(held, uid, name) == merged_options(held)


def test_longest_annotation_name_is_valid() -> None:
    options = attrs.evolve(runoptions.RunOptions(), cdi_devices=("v.com/gpu=0",))
    longest = 63 - len("devicemanager_-main")
    for number, is_valid in ((longest, True), (longest + 1, False)):
        problem = CdiRules(annotates=True).problem(options, PodUid("u" * number), MAIN)
        assert (problem == "") is is_valid


def test_output_of_a_command_begins_with_the_notes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[object] = []

    def run(made: Bundle, *arguments: object, **options: object) -> object:
        calls.append((made.notes, arguments, options))
        return subprocess.CompletedProcess(["sandbox"], 3, "out", "err")

    monkeypatch.setattr(container_runs, "run", run)
    card = runoptions.NetworkInterface("eth42", "net0")
    options = attrs.evolve(runoptions.RunOptions(), network_interfaces=(card,))
    done = container_runs.run_with_options(options, ("a", "b"), tmp_path, "crun", 7.0)
    note = "network interface eth42 is left out: only root can move it"
    assert (done.args, done.returncode, done.stdout) == (["a", "b"], 3, "out")
    assert done.stderr == f"{note}\nerr"
    expected = {"capture_output": True, "text": True, "timeout": 7.0}
    assert calls == [((note,), ("crun",), expected)]
