"""An invalid setting is rejected when Settings is created."""

import re

import attrs
import pytest

from checkpoint import Durability
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.topology import NumaTopology, TopologyConfigError
from devicemanager.kubelet.settings import Settings

TIMES = ["dial_timeout", "options_timeout", "allocate_timeout", "preferred_allocation_timeout"]
TIMES += ["pre_start_timeout", "grace_period", "wait_for_plugin"]


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("wrong", [-1, -0.5, "3", True, float("nan")])
def test_time_must_be_a_number(field, wrong):
    with pytest.raises(ValueError, match=f"^{field} is a number of at least 0"):
        Settings(**{field: wrong})
    assert getattr(Settings(**{field: 0}), field) == 0


@pytest.mark.parametrize("field", TIMES)
def test_none_disables_a_timeout(field):
    if field in {"dial_timeout", "grace_period", "wait_for_plugin"}:
        with pytest.raises(ValueError, match=f"^{field} is .*: not None$"):
            Settings(**{field: None})
    else:
        assert getattr(Settings(**{field: None}), field) is None


@pytest.mark.parametrize(
    ("field", "wrong", "wanted"),
    [
        ("max_list_bytes", -2, "a whole number of at least -1"),
        ("max_list_bytes", 1.5, "a whole number of at least -1"),
        ("pod_resources_qps", 0, "a number above 0, or None for no limit"),
        ("pod_resources_qps", -1, "a number of at least 0, or None for no limit"),
        ("pod_resources_burst", 0, "a whole number of at least 1"),
        ("health_queue_size", 0, "a whole number of at least 1"),
        ("durability", "paper", "one of process, kubelet, power"),
        ("durability", None, "one of process, kubelet, power"),
        ("durability", 1, "one of process, kubelet, power"),
        ("quirks", "Q1", "a set of names"),
        ("quirks", 1, "a set of names"),
        ("quirks", [1], "a set of names"),
        ("declared_resources", "vendor.com/gpu", "a set of names"),
        ("topology_policy", None, "a policy's name"),
        ("topology_scope", 3, "a scope's name"),
        ("topology_options", {"max-allowable-numa-nodes": 9}, "a mapping of names to texts"),
        ("topology_options", "x", "a mapping of names to texts"),
        ("node_allocatable", "cpu=4", "a mapping of resources to amounts"),
        ("numa", [0, 1], "a NumaTopology, such as NumaTopology.of([0, 1])"),
    ],
)
def test_invalid_value_is_rejected_with_its_field(field, wrong, wanted):
    with pytest.raises(ValueError, match=f"^{field} is {re.escape(wanted)}.*: not .*$"):
        Settings(**{field: wrong})


@pytest.mark.parametrize("wrong", ["-1", -1, True, None, "two", "1 Gi", float("nan")])
def test_amount_must_be_a_quantity(wrong):
    text = (
        r"^node_allocatable\['cpu'\] is a quantity of at least 0, such as 2, '500m' or '8Gi': not"
    )
    with pytest.raises(ValueError, match=text):
        Settings(node_allocatable={"cpu": wrong})


def test_amounts_are_parsed_as_in_a_manifest():
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
        ({"topology_policy": "restricted", "topology_options": {"x": "1"}}, "option: .x"),
        (
            {"topology_policy": "restricted", "numa": NumaTopology.of(range(9))},
            "more than 8 NUMA Nodes",
        ),
    ],
)
def test_invalid_topology_settings_have_the_kubelets_text(settings, text):
    with pytest.raises(TopologyConfigError, match=text):
        Settings(**settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"strict": "yes"}, "strict is True or False: not 'yes'"),
        ({"pod_resources_list_inactive": 1}, "pod_resources_list_inactive is True or False: not 1"),
        ({"node_name": ""}, "node_name is a node's name, of lower case letters, digits, - and ."),
        (
            {"node_name": "node-<b>1</b>"},
            "node_name is a node's name, of lower case letters, digits, - and .",
        ),
        ({"node_name": "My Node"}, "node_name is a node's name, .*: not 'My Node'"),
        ({"node_name": 5}, "node_name is a node's name, .*: not 5"),
    ],
)
def test_value_of_wrong_type_is_rejected(settings, text):
    with pytest.raises(ValueError, match=f"^{text}"):
        Settings(**settings)


def test_policy_none_accepts_any_options():
    assert Settings(topology_options={"x": "1"}).topology_options == {"x": "1"}


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "vendor.com/"])
def test_invalid_declared_resource_is_rejected(name):
    with pytest.raises(ValueError, match=f"^declared_resources names '{name}', which no plugin"):
        Settings(declared_resources={"vendor.com/gpu", name})


def test_default_topology_comes_from_the_providers():
    three = NumaTopology.of(range(3))
    settings = Settings(providers=(CpuProvider.of(three, {0: [0], 2: [1]}),))
    assert (settings.topology, settings.topology_grows) == (three, False)
    assert (Settings().topology, Settings().topology_grows) == (NumaTopology.of([0]), True)
    assert not Settings(numa=three).topology_grows


def test_sets_accept_lists_and_paths_accept_text():
    settings = Settings(quirks=["Q1"], declared_resources=["v.com/g"], sysfs="/elsewhere")
    assert settings.quirks == {"Q1"}
    assert settings.declared_resources == {"v.com/g"}
    assert settings.sysfs.name == "elsewhere"


def test_default_durability_is_the_kubelets():
    assert Settings().durability is Durability.KUBELET
    assert Settings(durability="power") == Settings(durability=Durability.POWER)
