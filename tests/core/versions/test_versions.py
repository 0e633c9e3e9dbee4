"""The tables of version differences, and the behaviour of single versions."""

from __future__ import annotations

import re
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager import Settings
from devicemanager.core.versions.behaviour import STEPS, Behaviour, StartRemoves, resolve
from devicemanager.core.versions.changelog import (
    basis,
    describe,
    dra_basis,
    read_basis,
    warning,
)
from devicemanager.core.versions.gates import GATES, accepts
from devicemanager.core.versions.quirks import QUIRKS, check_quirks, quirks_of
from devicemanager.core.versions.table import DraWording, HealthCheck, Level, MergeRule, WipeRule
from devicemanager.core.versions.version import NEWEST_KNOWN, OLDEST, KubeletVersion, VersionError
from tests.paths import ROOT
from tools.versions_page import PAGE, page

LISTEN_FAILED = (
    "failed to listen to socket while starting device plugin registry, with error {error}"
)
WATCHER_DIAL_FAILED = (
    "failed to dial device plugin with socketPath {socket}: failed to dial device plugin: {error}"
)
CLOSEST, MOST = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
TOPOLOGY_METRICS = (
    "kubelet_topology_manager_admission_requests_total",
    "kubelet_topology_manager_admission_errors_total",
    "kubelet_topology_manager_admission_duration_ms",
)
SINCE_1_32 = (
    "kubelet_admission_rejections_total",
    "kubelet_container_aligned_compute_resources_count",
)
EMPTY_REPLY = "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"
SCRAPE_ERRORS = ("scrape_error", "resource_scrape_error")


def at(version: str, **gates: bool) -> Behaviour:
    return resolve(KubeletVersion.parse(version), gates)


def test_versions_are_ordered():
    texts = ["1.20.0", "1.20.9", "1.20", "1.28.2", "1.28", "1.36.3", "1.36", "1.38"]
    parsed = [KubeletVersion.parse(text) for text in texts]
    assert parsed == sorted(parsed) and [str(each) for each in parsed] == texts
    assert KubeletVersion.parse("v1.28.2") == KubeletVersion(28, 2)


@pytest.mark.parametrize("text", ["1.19", "1.39", "2.0", "1", "", "1.28.", "latest", 1.28, None])
def test_invalid_version(text):
    with pytest.raises(VersionError, match=r"1\.\d\d"):
        KubeletVersion.parse(text)
    with pytest.raises(ValueError, match="kubelet version"):
        Settings(kubelet_version=text)


def test_table_has_every_field_in_ascending_steps():
    fields = {each.name for each in attrs.fields(Behaviour)} - {"version", "gates"}
    assert STEPS.keys() == fields
    for steps in (*STEPS.values(), *(quirk.steps for quirk in QUIRKS.values())):
        assert [str(each) for each in steps[0].since] == ["1.20"]
        starts = [(step.since[-1].minor, step.since[-1].patch or 0) for step in steps]
        assert starts == sorted(set(starts))
        for step in steps:
            backports = step.since[:-1]
            assert all(each.patch and each < step.since[-1] for each in backports)
            for term in step.gate.split("&") if step.gate else ():
                assert term.strip().lstrip("!") in GATES
        # Each step must change something.
        assert all(one != other for one, other in pairwise((s.value, s.gate) for s in steps))
    for gate in GATES.values():
        assert [step.since for step in gate] == sorted({step.since for step in gate})


def test_every_field_is_used():
    read: set[str] = set()
    for path in (ROOT / "devicemanager").rglob("*.py"):
        if "versions" not in path.relative_to(ROOT).parts:
            read.update(re.findall(r"\bbehaviour\.(\w+)", path.read_text()))
    assert STEPS.keys() <= read


def test_versions_are_compared_only_here():
    for path in (ROOT / "devicemanager").rglob("*.py"):
        if "versions" not in path.relative_to(ROOT).parts:
            assert not re.search(r"version\.(minor|patch)\b", path.read_text()), path


def test_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tools.versions_page"


DRA_1_33 = ("v1beta1.DRAPlugin", "v1alpha3.NodeService")
DRA_1_34 = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
DRA_HEALTH = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")

CHANGES = [
    ("dra_services", "1.33", "1.34", (DRA_1_33, DRA_1_34)),
    ("dra_plugin_chooses", "1.33", "1.34", (False, True)),
    ("dra_several_instances", "1.32", "1.33", (False, True)),
    ("dra_wipe", "1.32", "1.33", (WipeRule.AT_ONCE, WipeRule.DEREGISTERED)),
    ("dra_wipe", "1.33", "1.34", (WipeRule.DEREGISTERED, WipeRule.DISCONNECTED)),
    ("dra_wording", "1.33", "1.34", (DraWording.V1_32, DraWording.V1_34)),
    ("dra_wording", "1.35", "1.36", (DraWording.V1_34, DraWording.V1_36)),
    ("dra_validates_first", "1.33", "1.34", (False, True)),
    ("dra_names_from_cache", "1.36", "1.37", (False, True)),
    ("dra_refuses_unpreparing", "1.36", "1.37", (False, True)),
    ("dra_unprepares_own", "1.36", "1.37", (False, True)),
    ("dra_stores_share_id", "1.34", "1.35", (False, True)),
    ("dra_knows_skips", "1.36", "1.37", (False, True)),
    ("dra_all_mappings", "1.35", "1.36", (False, True)),
    ("dra_gathers_requests", "1.35", "1.36", (False, True)),
    ("dra_pod_groups", "1.35", "1.36", (False, False)),
    ("dra_claim_per_request", "1.35", "1.36", (True, False)),
    ("dra_health_services", "1.36", "1.37", ((), DRA_HEALTH)),
    ("dra_health_forgets", "1.36", "1.37", (False, True)),
    ("dra_counts_claims", "1.33", "1.34", (False, True)),
    ("dra_error_label_inverted", "1.35", "1.36", (True, False)),
    ("checks_resize_capacity", "1.35", "1.36", (True, False)),
    (
        "static_resize",
        "1.34",
        "1.35",
        ("alongside {name} static policy", 'alongside {name} policy "{policy}"'),
    ),
    ("resize_events", "1.34", "1.35", (False, True)),
    (
        "declared_features",
        "1.35",
        "1.36",
        (
            (),
            ("InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"),
        ),
    ),
    ("start_removes", "1.32", "1.33", (StartRemoves.ALL_BUT_DIRECTORIES, StartRemoves.SOCKETS)),
    ("deprecation_file", "1.24", "1.25", (True, False)),
    ("register_waits", "1.24", "1.25", (False, True)),
    ("options_of_request", "1.24", "1.25", (True, False)),
    ("listen_failed", "1.20", "1.21", (LISTEN_FAILED, "{error}")),
    ("watcher_retries", "1.35", "1.36", (False, True)),
    ("several_plugins", "1.36", "1.37", (False, True)),
    ("unknown_init_requests", "1.30", "1.31", (True, False)),
    ("admission_checks_health", "1.27.1", "1.27.2", (False, True)),
    ("running_survive_restart", "1.27.1", "1.27.2", (True, False)),
    ("running_survive_restart", "1.27.5", "1.27.6", (False, True)),
    ("running_survive_restart", "1.26.8", "1.28.0", (False, True)),
    ("sidecars", "1.28", "1.29", (False, True)),
    ("forbids_sidecars", "1.27", "1.28", (False, True)),
    ("sidecars_keep", "1.28", "1.29", (False, True)),
    ("empty_allocate_reply", "1.33", "1.34", (EMPTY_REPLY, "")),
    ("shared_cpu_ids", "1.22", "1.23", (True, False)),
    ("one_entry_per_device", "1.20", "1.21", (False, True)),
    ("reports_claim_devices", "1.30", "1.31", (False, True)),
    ("backed_fit", "1.35", "1.36", (False, True)),
    ("backed_skip_plugins", "1.35", "1.36", (False, True)),
    ("uses_cdi", "1.28", "1.29", (False, True)),
    ("stores_cdi", "1.27", "1.28", (False, True)),
    ("none_checks_options", "1.27", "1.28", (True, False)),
    ("annotates_cdi", "1.28", "1.29", (False, True)),
    ("annotates_cdi", "1.31", "1.32", (True, False)),
    ("reads_v1", "1.21", "1.22", (False, True)),
    ("reads_v1", "1.30", "1.31", (True, False)),
    ("no_topology_node", "1.22", "1.23", (0, -1)),
    ("capital_option_levels", "1.32", "1.33", (True, False)),
    ("merge_rule", "1.23", "1.24", (MergeRule.NARROWEST, MergeRule.BALANCED)),
    ("empty_topology_aligns", "1.25", "1.26", (True, False)),
    ("keeps_admitted_pod", "1.31", "1.32", (True, False)),
    ("hints_over_device_nodes", "1.35.4", "1.36.0", (False, True)),
    ("has_get_allocatable", "1.20", "1.21", (False, True)),
    ("get_allocatable_enabled", "1.22", "1.23", (False, True)),
    ("allocatable_unhealthy", "1.22", "1.23", (True, False)),
    ("has_get", "1.26", "1.27", (False, True)),
    ("get_enabled", "1.33", "1.34", (False, True)),
    ("serves_pods", "1.36", "1.37", (False, True)),
    ("pods_await_sources", "1.36", "1.37", (False, True)),
    ("list_inactive", "1.33", "1.34", (True, False)),
    ("get_inactive", "1.34.6", "1.34.7", (True, False)),
    ("get_inactive", "1.35.3", "1.35.4", (True, False)),
    ("get_inactive", "1.35.3", "1.36.0", (True, False)),
    ("lists_sidecars", "1.29", "1.30", (False, True)),
    ("reports_memory", "1.21", "1.22", (False, True)),
    ("reports_dynamic_resources", "1.33", "1.34", (False, True)),
    ("reports_share_id", "1.34", "1.35", (False, True)),
    ("rate_limited", "1.26", "1.27", (False, True)),
    ("container_restart_rules", "1.34", "1.35", (False, True)),
    ("reports_container_resources", "1.32", "1.33", (False, True)),
    ("reports_observed_generation", "1.33", "1.34", (False, True)),
    ("reports_resource_health", "1.35", "1.36", (False, True)),
    ("health_check", "1.31", "1.32.0", (HealthCheck.NONE, HealthCheck.STRICT)),
    ("health_check", "1.32.10", "1.32.11", (HealthCheck.STRICT, HealthCheck.LENIENT)),
    ("health_check", "1.33.6", "1.33.7", (HealthCheck.STRICT, HealthCheck.LENIENT)),
    ("health_check", "1.34.2", "1.34.3", (HealthCheck.STRICT, HealthCheck.LENIENT)),
    ("health_check", "1.34.2", "1.35.0", (HealthCheck.STRICT, HealthCheck.LENIENT)),
    ("scrape_errors", "1.28", "1.29", (("scrape_error",), SCRAPE_ERRORS)),
    ("scrape_errors", "1.29", "1.30", (SCRAPE_ERRORS, ("resource_scrape_error",))),
    (
        "watcher_dial_failed",
        "1.24",
        "1.25",
        (WATCHER_DIAL_FAILED, "failed to dial device plugin: {error}"),
    ),
    ("admission_checks_health", "1.25.9", "1.25.10", (False, True)),
    ("admission_checks_health", "1.26.4", "1.26.5", (False, True)),
    ("admission_checks_health", "1.27.1", "1.28.0", (False, True)),
    ("running_survive_restart", "1.25.9", "1.25.10", (True, False)),
    ("running_survive_restart", "1.26.4", "1.26.5", (True, False)),
    ("running_survive_restart", "1.25.13", "1.25.14", (False, True)),
    ("running_survive_restart", "1.26.8", "1.26.9", (False, True)),
    ("topology_options", "1.25", "1.26", ({}, {CLOSEST: Level.ALPHA})),
    ("topology_options", "1.27", "1.28", ({CLOSEST: Level.ALPHA}, {CLOSEST: Level.BETA})),
    (
        "topology_options",
        "1.30",
        "1.31",
        ({CLOSEST: Level.BETA}, {CLOSEST: Level.BETA, MOST: Level.BETA}),
    ),
    (
        "topology_options",
        "1.31",
        "1.32",
        ({CLOSEST: Level.BETA, MOST: Level.BETA}, {CLOSEST: Level.STABLE, MOST: Level.BETA}),
    ),
    (
        "topology_options",
        "1.34",
        "1.35",
        ({CLOSEST: Level.STABLE, MOST: Level.BETA}, {CLOSEST: Level.STABLE, MOST: Level.STABLE}),
    ),
    (
        "topology_options_gates",
        "1.26",
        "1.27",
        (("TopologyManager", "TopologyManagerPolicyOptions"), ("TopologyManagerPolicyOptions",)),
    ),
    (
        "get_allocatable_disabled",
        "1.26",
        "1.27",
        (
            "Pod Resources API GetAllocatableResources disabled",
            "PodResources API GetAllocatableResources disabled",
        ),
    ),
    ("podresources_metrics", "1.20", "1.21", ((), ("list", "get_allocatable"))),
    (
        "podresources_metrics",
        "1.26",
        "1.27",
        (("list", "get_allocatable"), ("list", "get_allocatable", "get")),
    ),
    ("pods_api_metrics", "1.35", "1.36", ((), ("watch_events_dropped",))),
    (
        "pods_api_metrics",
        "1.36",
        "1.37",
        (("watch_events_dropped",), ("watch_events_dropped", "requests")),
    ),
    ("counts_allocatable_twice", "1.20", "1.21", (False, True)),
    ("counts_allocatable_twice", "1.26", "1.27", (True, False)),
    ("admission_metrics", "1.26", "1.27", ((), TOPOLOGY_METRICS)),
    ("admission_metrics", "1.31", "1.32", (TOPOLOGY_METRICS, (*TOPOLOGY_METRICS, *SINCE_1_32))),
    (
        "admission_metrics",
        "1.32",
        "1.33",
        (
            (*TOPOLOGY_METRICS, *SINCE_1_32),
            (*TOPOLOGY_METRICS, *SINCE_1_32, f"{SINCE_1_32[1].removesuffix('count')}failure_count"),
        ),
    ),
]
"""Field, the versions just below and at a change, and the value of each."""

GATED_CHANGES = [
    ("dra_enabled", "1.31", "1.32", "DynamicResourceAllocation"),
    ("dra_skips_operations", "1.36", "1.37", "DRAOptionalNodeOperations"),
    ("dra_extended", "1.33", "1.34", "DRAExtendedResource"),
    ("dra_health", "1.33", "1.34", "ResourceHealthStatus"),
    ("dra_health_messages", "1.35", "1.36", "ResourceHealthStatusMessage"),
    ("counts_pod_level_requests", "1.31", "1.32", "PodLevelResources"),
    ("backed_fit", "1.33", "1.34", "DRAExtendedResource"),
    ("backed_skip_plugins", "1.34", "1.35", "DRAExtendedResource"),
    ("sidecars", "1.27", "1.28", "SidecarContainers"),
    ("pod_level_rejection", "1.35", "1.36", "PodLevelResourceManagers"),
    ("uses_cdi", "1.27", "1.28", "DevicePluginCDIDevices"),
    ("annotates_cdi", "1.27", "1.28", "DevicePluginCDIDevices"),
    ("get_allocatable_enabled", "1.20", "1.21", "KubeletPodResourcesGetAllocatable"),
    ("get_enabled", "1.26", "1.27", "KubeletPodResourcesGet"),
    ("serves_pods", "1.35", "1.36", "PodsAPI"),
    ("reports_pod_level", "1.36", "1.37", "PodLevelResourceManagers"),
    ("dra_permanent_errors", "1.34", "1.35", "DRAHandlePermanentDriverFailures"),
    ("container_restart_rules", "1.33", "1.34", "ContainerRestartRules"),
    ("reports_container_resources", "1.26", "1.27", "InPlacePodVerticalScaling"),
    ("resizes_pods", "1.32", "1.33", "InPlacePodVerticalScaling"),
    ("reports_observed_generation", "1.32", "1.33", "PodObservedGenerationTracking"),
    ("reports_resource_health", "1.30", "1.31", "ResourceHealthStatus"),
]
"""Field, the versions just below and at its first step, and the gate that enables it."""


@pytest.mark.parametrize(("field", "below", "version", "values"), CHANGES)
def test_value_just_below_and_at_its_version(field, below, version, values):
    assert (getattr(at(below), field), getattr(at(version), field)) == values


@pytest.mark.parametrize(("field", "below", "version", "gate"), GATED_CHANGES)
def test_gate_has_no_effect_just_below_its_version(field, below, version, gate):
    has = GATES[gate][0].since <= KubeletVersion.parse(below).minor
    assert not getattr(at(below, **({gate: True} if has else {})), field)
    assert getattr(at(version, **{gate: True}), field)


def test_every_step_of_the_table_is_tested():
    """The values are repeated in the test, so that a mistake in the table is found."""
    tested = {(change[0], change[2]) for change in (*CHANGES, *GATED_CHANGES)}
    for field, steps in STEPS.items():
        for version in (str(each) for step in steps[1:] for each in step.since):
            zero = version if version.count(".") == 2 else f"{version}.0"
            assert {(field, version), (field, zero)} & tested, (field, version)


def test_patch_before_the_backport_lacks_it():
    assert at("1.34.6").get_inactive and not at("1.34").get_inactive
    assert at("1.33.20").get_inactive


def test_description_of_a_behaviour():
    def text(name, version):
        return describe(name, KubeletVersion.parse(version))

    assert text("merge_rule", "1.36") == "kubelets do this since 1.24 (k/k#108052, k/k#108154)"
    assert text("merge_rule", "1.23") == "kubelets do this before 1.24 (k/k#108052, k/k#108154)"
    assert text("lists_sidecars", "1.30") == "kubelets do this since 1.30 (k/k#120718)"
    assert text("", "1.36") == ""
    assert text("get_enabled", "1.36") == ""


def test_gates_set_their_behaviour():
    assert at("1.32", KubeletPodResourcesGet=True).get_enabled
    assert at("1.34", KubeletPodResourcesListUseActivePods=False).list_inactive
    assert at("1.37", PodLevelResourceManagers=True).reports_pod_level
    assert not at("1.36", PodLevelResourceManagers=True).reports_pod_level
    both = {"DynamicResourceAllocation": True, "KubeletPodResourcesDynamicResources": True}
    assert at("1.32", **both).reports_dynamic_resources
    assert not at("1.32", DynamicResourceAllocation=True).reports_dynamic_resources


@pytest.mark.parametrize(
    ("version", "gates", "text"),
    [
        (
            "1.26",
            {"KubeletPodResourcesGet": True},
            "unknown feature gate 'KubeletPodResourcesGet' for kubelet 1.26: use",
        ),
        (
            "1.36",
            {"KubeletPodResourcesGet": False},
            "KubeletPodResourcesGet=False: it is locked to True in",
        ),
        (
            "1.32",
            {"NoSuchGate": True},
            "unknown feature gate 'NoSuchGate' for kubelet 1.32: use one of",
        ),
        (
            "1.30",
            {"KubeletPodResourcesGetAllocatable": True},
            "unknown feature gate .* for kubelet 1.30",
        ),
        (
            "1.32",
            {"KubeletPodResourcesGet": "yes"},
            "KubeletPodResourcesGet='yes': use True or False",
        ),
        ("1.32", ["KubeletPodResourcesGet"], "expected a mapping of names to True or"),
    ],
)
def test_invalid_feature_gate(version, gates, text):
    with pytest.raises(ValueError, match=text):
        Settings(kubelet_version=version, feature_gates=gates)


@given(st.integers(OLDEST, NEWEST_KNOWN), st.one_of(st.none(), st.integers(0, 20)))
def test_every_version_resolves(minor, patch):
    behaviour = resolve(KubeletVersion(minor, patch))
    assert behaviour.get_enabled <= behaviour.has_get
    assert set(behaviour.gates) == set(GATES)


def test_unknown_and_missing_quirks_are_rejected():
    old = KubeletVersion.parse("1.20")
    check_quirks((), old)
    check_quirks(quirks_of(old), old)
    with pytest.raises(VersionError) as raised:
        check_quirks(["Q3", "Qx"], old)
    assert str(raised.value) == f"unknown quirk Qx: use one of {', '.join(QUIRKS)}"
    missing = min(QUIRKS.keys() - quirks_of(old))
    with pytest.raises(VersionError) as raised:
        check_quirks([missing], old)
    existing = ", ".join(name for name in QUIRKS if name in quirks_of(old))
    text = f"kubelet 1.20 does not have quirk {missing}: use one of {existing}"
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("version", "compared", "dra"),
    [
        ("1.24", "", ""),
        ("1.25", "300 scenarios of 1.25.16", ""),
        ("1.32.2", "3000 scenarios of 1.32.13", "1.32.13"),
        ("1.33", "1000 scenarios of 1.33.13", ""),
        ("1.36", "1000 scenarios of 1.36.3", "1.36.3"),
        ("1.38", "", ""),
    ],
)
def test_texts_say_how_a_version_was_verified(version, compared, dra):
    """The comparisons are in the table of docs/kubelet-versions.md."""
    known = KubeletVersion.parse(version)
    source = f"{version}, based only on its source code"
    assert read_basis(known) == source
    assert basis(known) == (f"{version}, verified with {compared}" if compared else source)
    assert warning(known) == (
        "" if compared else f"the mock of kubelet {version} was not compared with a real kubelet"
    )
    assert dra_basis(known) == (
        f"{version}, DRA compared with {dra}"
        if dra
        else f"{version}, DRA based only on its source code"
    )


@pytest.mark.parametrize(
    ("gate", "version", "wanted", "accepted"),
    [
        ("PodsAPI", "1.35", True, False),
        ("PodsAPI", "1.36", True, True),
        ("PodsAPI", "1.36", False, True),
        ("PodsAPI", "1.36", "true", False),
        ("SidecarContainers", "1.33", True, True),
        ("SidecarContainers", "1.33", False, False),
        ("SidecarContainers", "1.37", True, False),
        ("NoSuchGate", "1.37", True, False),
    ],
)
def test_accepted_gates(gate, version, wanted, accepted):
    assert accepts(gate, KubeletVersion.parse(version), wanted) is accepted


@pytest.mark.parametrize(
    ("version", "release"), [("1.28", "v1.28.0"), ("1.28.2", "v1.28.2"), ("v1.37.1", "v1.37.1")]
)
def test_release_of_a_version(version, release):
    assert KubeletVersion.parse(version).release == release
