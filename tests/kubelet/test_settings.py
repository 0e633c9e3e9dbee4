"""Settings: validation of each field, and the table of flags."""

import re
from pathlib import Path

import attrs
import pytest

from checkpoint import Durability
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.core.versions.version import KubeletVersion
from devicemanager.kubelet.setting_flags import FLAGS
from devicemanager.kubelet.settings import Settings

TIMES = ["dial_timeout", "options_timeout", "allocate_timeout", "preferred_allocation_timeout"]
TIMES += ["pre_start_timeout", "grace_period", "wait_for_plugin"]
NODE_NAME = "expected a node name of lower case letters, digits, - and ."


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("wrong", [-1, -0.5, "3", True, float("nan")])
def test_time_must_be_a_nonnegative_number(field, wrong):
    with pytest.raises(ValueError, match=f"^invalid {field} .*: expected a number of at least 0"):
        Settings(**{field: wrong})
    assert getattr(Settings(**{field: 0}), field) == 0


@pytest.mark.parametrize("field", TIMES)
def test_none_disables_optional_timeouts(field):
    if field in {"dial_timeout", "grace_period", "wait_for_plugin"}:
        with pytest.raises(ValueError, match=f"^invalid {field} None: expected "):
            Settings(**{field: None})
    else:
        assert getattr(Settings(**{field: None}), field) is None


@pytest.mark.parametrize(
    ("field", "wrong", "wanted"),
    [
        ("max_list_bytes", -2, "a whole number of at least -1"),
        ("max_list_bytes", 1.5, "a whole number of at least -1"),
        ("pod_resources_qps", 0, "a number above 0, or None for no limit"),
        ("pod_resources_qps", -1, "a number above 0, or None for no limit"),
        ("pod_resources_burst", 0, "a whole number of at least 1"),
        ("health_queue_size", 0, "a whole number of at least 1"),
        ("durability", "paper", "one of process, kubelet, power"),
        ("durability", None, "one of process, kubelet, power"),
        ("durability", 1, "one of process, kubelet, power"),
        ("quirks", "Q1", "a set of names"),
        ("quirks", 1, "a set of names"),
        ("quirks", [1], "a set of names"),
        ("declared_resources", "vendor.com/gpu", "a set of names"),
        ("topology_policy", None, "the name of a policy"),
        ("topology_scope", 3, "the name of a scope"),
        ("topology_options", {"max-allowable-numa-nodes": 9}, "a mapping of names to strings"),
        ("topology_options", "x", "a mapping of names to strings"),
        ("node_allocatable", "cpu=4", "a mapping of resources to quantities"),
        ("numa", [0, 1], "a NumaTopology, such as NumaTopology.of([0, 1])"),
    ],
)
def test_invalid_value_error_names_the_field(field, wrong, wanted):
    with pytest.raises(ValueError, match=f"^invalid {field} .*: expected {re.escape(wanted)}"):
        Settings(**{field: wrong})


@pytest.mark.parametrize("wrong", ["-1", -1, True, None, "two", "1 Gi", float("nan")])
def test_node_allocatable_rejects_invalid_quantities(wrong):
    text = r"^invalid node_allocatable\['cpu'\] .*: expected a quantity of at least 0, such as 2, "
    with pytest.raises(ValueError, match="^" + text):
        Settings(node_allocatable={"cpu": wrong})


def test_node_allocatable_parses_quantities_as_manifests_do():
    settings = Settings(node_allocatable={"cpu": 2, "memory": "8Gi", "pods": 1.0, "v.com/g": "1k"})
    wanted = {"cpu": 2000, "memory": 8 << 30, "pods": 1, "v.com/g": 1000}
    assert settings.node_amounts == wanted
    # A copy does not parse them again.
    assert attrs.evolve(settings, strict=True).node_amounts == wanted
    assert Settings(node_allocatable={"cpu": "500m"}).node_amounts == {"cpu": 500}
    assert Settings(node_allocatable={"cpu": 0.5}).node_amounts == {"cpu": 500}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"topology_policy": "best"}, 'unknown policy: "best"'),
        ({"topology_policy": "restricted", "topology_scope": "node"}, 'unknown scope: "node"'),
        ({"topology_scope": "x"}, 'unknown scope: "x"'),
        (
            {"topology_policy": "restricted", "topology_options": {"x": "1"}},
            r"unknown Topology Manager Policy option: .x",
        ),
        (
            {"topology_policy": "restricted", "numa": NumaTopology.of(range(9))},
            r"unsupported on machines with more than 8 NUMA Nodes",
        ),
    ],
)
def test_topology_settings_are_rejected_with_the_kubelets_texts(settings, text):
    with pytest.raises(TopologyConfigError, match="^" + text):
        Settings(**settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"strict": "yes"}, "invalid strict 'yes': expected True or False"),
        (
            {"pod_resources_list_inactive": 1},
            "invalid pod_resources_list_inactive 1: expected True",
        ),
        ({"node_name": ""}, f"invalid node_name '': {NODE_NAME}"),
        ({"node_name": "node-<b>1</b>"}, f"invalid node_name 'node-<b>1</b>': {NODE_NAME}"),
        ({"node_name": "My Node"}, f"invalid node_name 'My Node': {NODE_NAME}"),
        ({"node_name": 5}, f"invalid node_name 5: {NODE_NAME}"),
    ],
)
def test_value_of_wrong_type_is_rejected(settings, text):
    with pytest.raises(ValueError, match=f"^{text}"):
        Settings(**settings)


def test_policy_none_accepts_any_options():
    assert Settings(topology_options={"x": "1"}).topology_options == {"x": "1"}


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "vendor.com/"])
def test_declared_resources_must_be_extended_resource_names(name):
    with pytest.raises(ValueError, match=f"^invalid declared_resources '{name}': expected "):
        Settings(declared_resources={"vendor.com/gpu", name})


def test_numa_defaults_to_the_nodes_of_the_providers():
    three = NumaTopology.of(range(3))
    settings = Settings(providers=(CpuProvider.of(three, {0: [0], 2: [1]}),))
    assert (settings.topology, settings.topology_grows) == (three, False)
    assert (Settings().topology, Settings().topology_grows) == (NumaTopology.of([0]), True)
    assert not Settings(numa=three).topology_grows


def test_lists_and_text_paths_are_converted():
    settings = Settings(quirks=["Q2"], declared_resources=["v.com/g"], sysfs="/elsewhere")
    assert settings.quirks == {"Q2"}
    assert settings.declared_resources == {"v.com/g"}
    assert settings.sysfs.name == "elsewhere"


def test_defaults_of_all_settings():
    settings = Settings()
    derived = {"behaviour", "topology_manager"}
    found = {
        field.name: getattr(settings, field.name)
        for field in attrs.fields(Settings)
        if field.name not in derived
    }
    assert found == {
        "kubelet_version": "1.37",
        "feature_gates": {},
        "dial_timeout": 10.0,
        "options_timeout": 10.0,
        "allocate_timeout": None,
        "preferred_allocation_timeout": None,
        "pre_start_timeout": 30.0,
        "grace_period": 300.0,
        "max_list_bytes": 4194304,
        "max_allocate_bytes": 1048576,
        "max_registrations_per_process": 100,
        "max_registrations": 500,
        "pod_resources_qps": 100.0,
        "pod_resources_burst": 10,
        "pod_resources_list_inactive": False,
        "calls_kept": 5000,
        "calls_bytes": 16777216,
        "health_queue_size": 100,
        "durability": "kubelet",
        "declared_resources": frozenset(),
        "strict": False,
        "wait_for_plugin": 0.0,
        "topology_policy": "none",
        "topology_scope": "container",
        "topology_options": {},
        "node_allocatable": {},
        "providers": (),
        "numa": None,
        "node_name": "mock",
        "claims_admin_namespaces": None,
        "kubeconfig": None,
        "sysfs": Path("/sys"),
        "shuffle_seed": None,
        "quirks": frozenset(),
    }
    assert settings.behaviour.version == KubeletVersion.parse("1.37")
    assert settings.topology_manager.name == "none"


@pytest.mark.parametrize(
    ("field", "least"),
    [
        ("max_list_bytes", -1),
        ("max_allocate_bytes", 1),
        ("max_registrations_per_process", 1),
        ("max_registrations", 1),
        ("pod_resources_burst", 1),
        ("calls_kept", 0),
        ("calls_bytes", 0),
        ("health_queue_size", 1),
    ],
)
def test_least_number_is_accepted_and_a_smaller_one_is_not(field, least):
    assert getattr(Settings(**{field: least}), field) == least
    for wrong in (least - 1, least + 0.5, True):
        with pytest.raises(
            ValueError, match=f"^invalid {field} {wrong!r}: expected a whole number of at least "
        ):
            Settings(**{field: wrong})
    is_limit = field.startswith(("max_allocate", "max_registrations"))
    if is_limit:
        assert getattr(Settings(**{field: None}), field) is None
    else:
        with pytest.raises(ValueError, match=f"^invalid {field} None: "):
            Settings(**{field: None})


def test_durability_defaults_to_kubelet():
    assert Settings().durability is Durability.KUBELET
    assert Settings(durability="power") == Settings(durability=Durability.POWER)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.option)
def test_flag_matches_its_field(flag):
    field = attrs.fields_dict(Settings)[flag.field]
    default = getattr(Settings(), field.name)
    if flag.repeated or not flag.default:
        assert not default
    elif flag.kind is str:
        assert flag.default == str(default)
    else:
        assert flag.kind(flag.default) == default
    for choice in flag.choices:
        Settings(**{field.name: choice})
    if flag.least is not None:
        Settings(**{field.name: flag.kind(flag.least)})
        with pytest.raises(ValueError, match=field.name):
            Settings(**{field.name: flag.kind(flag.least) - 1})
    if flag.off:
        assert getattr(Settings(**{field.name: None}), field.name) is None
