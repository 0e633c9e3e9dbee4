"""The settings of the simulated plugin: each variable alone, all together, and their effects."""

import argparse
import socket
import tomllib

import attrs
import pytest
import yaml

from devicemanager.plugin import ConfigurationError, Device
from devicemanager.plugin.simulated import (
    AllocateFault,
    IdShape,
    ListFault,
    PreferredPolicy,
    SimulatedError,
    SimulatedPlugin,
    SimulationSettings,
    add_arguments,
    manifest,
)
from devicemanager.plugin.simulated.control import parse_control
from devicemanager.plugin.simulated.objects import variables
from devicemanager.plugin.simulated.service import CallLog, RpcCall
from devicemanager.plugin.simulated.table import DeviceTable
from protos import deviceplugin_v1beta1 as dp
from tests.paths import ROOT

DEFAULTS = {
    "namespace": "simple-device-plugin",
    "plugin_name": "simple-device-plugin",
    "resource_name": "example.com/simple-device",
    "number_devices": 2,
    "device_id_prefix": "simple-device",
    "annotation_prefix": "",
    "env_prefix": "",
    "device_file_prefix": "",
    "node_name": socket.gethostname(),
    "numa": (),
    "id_shape": IdShape.INDEX,
    "replicas": 2,
    "preferred_policy": PreferredPolicy.NONE,
    "pre_start": False,
    "cdi_kind": "",
    "calls_kept": 10_000,
    "control_file": "",
    "rpc_delays": {},
    "rpc_errors": {},
    "list_fault": ListFault.NONE,
    "allocate_fault": AllocateFault.NONE,
}

VARIABLES = {
    "NAMESPACE": ("devices", "devices"),
    "PLUGIN_NAME": ("my-plugin", "my-plugin"),
    "RESOURCE_NAME": ("vendor.com/gpu", "vendor.com/gpu"),
    "NUMBER_DEVICES": ("17", 17),
    "DEVICE_ID_PREFIX": ("gpu", "gpu"),
    "ANNOTATION_PREFIX": ("vendor.com/gpu", "vendor.com/gpu"),
    "ENV_PREFIX": ("GPU", "GPU"),
    "DEVICE_FILE_PREFIX": ("gpu", "gpu"),
    "NODE_NAME": ("node-a", "node-a"),
    "NUMA": ("0, 1", (0, 1)),
    "ID_SHAPE": ("mig", IdShape.MIG),
    "REPLICAS": ("4", 4),
    "PREFERRED_POLICY": ("reverse", PreferredPolicy.REVERSE),
    "PRE_START": ("true", True),
    "CDI_KIND": ("vendor.com/gpu", "vendor.com/gpu"),
    "CALLS_KEPT": ("5", 5),
    "CONTROL_FILE": ("/run/control", "/run/control"),
    "RPC_DELAYS": ("Allocate=0.5,ListAndWatch=2", {"Allocate": 0.5, "ListAndWatch": 2.0}),
    "RPC_ERRORS": (
        "Allocate=INTERNAL:no driver,PreStartContainer=ABORTED",
        {
            "Allocate": SimulatedError("INTERNAL", "no driver"),
            "PreStartContainer": SimulatedError("ABORTED", "simulated"),
        },
    ),
    "LIST_FAULT": ("huge", ListFault.HUGE),
    "ALLOCATE_FAULT": ("hang", AllocateFault.HANG),
}


def as_dict(settings):
    return attrs.asdict(settings, recurse=False)


def test_defaults_are_those_of_the_page():
    assert as_dict(SimulationSettings.from_env({})) == DEFAULTS
    assert as_dict(SimulationSettings.from_env(dict.fromkeys(VARIABLES, ""))) == DEFAULTS
    page = (ROOT / "docs/plugin-author.md").read_text()
    for name, value in DEFAULTS.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value or "none")
        shown = "the host name" if name == "node_name" else "none" if value == () else shown
        assert f"| {name.upper()} | {shown if value != {} else 'none'} |" in page


@pytest.mark.parametrize(("name", "text", "value"), [(n, *v) for n, v in VARIABLES.items()])
def test_each_variable_alone(name, text, value):
    settings = SimulationSettings.from_env({name: text})
    assert as_dict(settings) == DEFAULTS | {name.lower(): value}


def test_all_variables_together():
    settings = SimulationSettings.from_env({name: text for name, (text, _) in VARIABLES.items()})
    assert as_dict(settings) == {name.lower(): value for name, (_, value) in VARIABLES.items()}
    # The environment of the DaemonSet reproduces the settings.
    assert SimulationSettings.from_env(variables(settings) | {"NODE_NAME": "node-a"}) == settings


def test_each_variable_has_a_flag():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = [f"--{name.lower().replace('_', '-')}={text}" for name, (text, _) in VARIABLES.items()]
    args = parser.parse_args(["manifest", *flags])
    assert {name: getattr(args, name.lower()) for name in VARIABLES} == {
        name: text for name, (text, _) in VARIABLES.items()
    }
    assert set(VARIABLES) == {name.upper() for name in DEFAULTS}


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("NUMBER_DEVICES", "two", "must be a whole number from 0 to 100000, not 'two'"),
        ("NUMBER_DEVICES", "-1", "must be a whole number from 0"),
        ("NUMBER_DEVICES", "99999999", "must be a whole number from 0 to 100000, not '99999999'"),
        ("REPLICAS", "0", "must be a whole number from 1"),
        ("RESOURCE_NAME", "gpu", "invalid resource name 'gpu'"),
        ("PLUGIN_NAME", "../x", "must be a file name"),
        ("NUMA", "a", "must be node numbers"),
        ("NUMA", "0,-1", "must be node numbers from 0"),
        ("NUMA", "1024", "must be node numbers from 0 to 1023, not '1024'"),
        ("ID_SHAPE", "round", "must be one of index, gpu-uuid, mig, replica, pci"),
        ("PRE_START", "maybe", "must be true or false"),
        ("PREFERRED_POLICY", "best", "must be one of none, lexical"),
        ("RPC_DELAYS", "Allocate=soon", "must be seconds per RPC"),
        ("RPC_DELAYS", "Alocate=1", "must be RPC=value pairs"),
        ("RPC_ERRORS", "Allocate=BAD", "must be gRPC codes per RPC"),
        ("LIST_FAULT", "x", "must be one of none, duplicate-ids"),
        ("ALLOCATE_FAULT", "x", "must be one of none, no-responses"),
        ("ENV_PREFIX", "A=", "invalid name of an environment variable"),
        ("ANNOTATION_PREFIX", "-", "invalid annotation key"),
        ("CDI_KIND", "gpu", "invalid CDI name"),
    ],
)
def test_invalid_value_is_named(variable, text, message):
    with pytest.raises(ConfigurationError) as error:
        SimulationSettings.from_env({variable: text})
    if message.startswith("must be "):
        # Both names, because the user may know only one of them.
        message = f"{variable} (--{variable.lower().replace('_', '-')}) {message}"
    assert message in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [{"number_devices": 2.9}, {"number_devices": True}, {"replicas": 2.0}, {"numa": (0.5,)}],
)
def test_fractions_are_rejected(fields):
    with pytest.raises(ConfigurationError, match=r"must be (a whole number|node numbers)"):
        SimulationSettings(**fields)


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        (IdShape.INDEX, r"simple-device-node-a-\d+"),
        (IdShape.GPU_UUID, r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        (IdShape.MIG, r"MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        (IdShape.REPLICA, r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}::[0-2]"),
        (IdShape.PCI, r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.0"),
    ],
)
def test_ids_have_their_shape_and_are_stable(shape, pattern):
    import re

    settings = SimulationSettings(node_name="node-a", id_shape=shape, replicas=3)
    ids = [settings.device_id(index) for index in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(pattern, id_) for id_ in ids)
    assert ids == [settings.device_id(index) for index in range(10_000)]


def test_replicas_share_their_device():
    settings = SimulationSettings(id_shape="replica", number_devices=4, replicas=2)
    cards = [device.id.partition("::") for device in DeviceTable(settings)]
    assert [replica for _, _, replica in cards] == ["0", "1", "0", "1"]
    assert cards[0][0] == cards[1][0] != cards[2][0]


def test_prefixes_determine_the_container_settings():
    settings = SimulationSettings(
        env_prefix="GPU", annotation_prefix="gpu", device_file_prefix="gpu", cdi_kind="a.b/c"
    )
    made = settings.container_settings({"x": 0, "y": 7})
    assert made.envs == {"GPU_0": "/dev/0", "GPU_7": "/dev/7"}
    assert made.annotations == {"gpu-0": "x", "gpu-7": "y"}
    assert [(d.host_path, d.container_path, d.permissions) for d in made.devices] == [
        ("/dev/gpu-0", "/dev/gpu-0", "rw"),
        ("/dev/gpu-7", "/dev/gpu-7", "rw"),
    ]
    assert made.cdi_devices == ("a.b/c=x", "a.b/c=y")
    nothing = SimulationSettings().container_settings({"x": 0})
    assert not any([nothing.envs, nothing.annotations, nothing.devices, nothing.cdi_devices])


def test_numa_nodes_are_assigned_in_turn_and_numbers_are_stable():
    settings = SimulationSettings(number_devices=3, numa="0,1", node_name="n")
    table = DeviceTable(settings)
    assert [device.numa for device in table] == [(0,), (1,), (0,)]
    first, second, _ = (device.id for device in table)
    table.remove(first)
    table.put("new")
    table.put("elsewhere", numa=(5,))
    assert table.indexes([first, second, "new", "elsewhere"]) == {
        first: 0,
        second: 1,
        "new": 3,
        "elsewhere": 4,
    }
    assert {device.id: device.numa for device in table}["new"] == (1,)
    assert list(table)[-1] == Device("elsewhere", numa=(5,))


def test_control_file_overrides_other_changes():
    table = DeviceTable(SimulationSettings(number_devices=2, device_id_prefix="d", node_name="n"))
    table.set_health("d-n-1", False)
    table.control({"d-n-0": "gone", "d-n-1": "Healthy", "new": "Unhealthy"})
    assert {d.id: d.healthy for d in table} == {"d-n-1": True, "new": False}
    table.control({})
    assert {d.id: d.healthy for d in table} == {"d-n-0": True, "d-n-1": False}


def test_invalid_line_is_logged_and_the_others_apply(caplog):
    text = "# gone\n\na Healthy\nb\nc Sick\nd gone\na Unhealthy\n#d Healthy\n"
    assert parse_control(text, "control") == {"a": "Unhealthy", "d": "gone"}
    assert "control:4" in caplog.text and "control:5" in caplog.text


def test_manifest_has_everything_that_a_node_needs():
    settings = SimulationSettings(
        namespace="ns", plugin_name="p", number_devices=8, numa=(0, 1), pre_start=True
    )
    text = manifest(settings, "registry.example.com/p:1")
    assert "&" not in text
    namespace, daemon_set = yaml.safe_load_all(text)
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "ns")
    assert daemon_set["metadata"]["namespace"] == "ns"
    spec = daemon_set["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    pod = spec["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.com/p:1"
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == "/var/lib/kubelet/device-plugins"
    (volume,) = pod["volumes"]
    assert volume["name"] == mount["name"]
    assert volume["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    given = {name: entry["value"] for name, entry in env.items() if "value" in entry}
    assert SimulationSettings.from_env(given) == settings


def test_call_log_is_bounded_and_counts_all_calls():
    call_log = CallLog(100)
    for number in range(105):
        request = dp.AllocateRequest()
        request.container_requests.add(devices_ids=[str(number)])
        call_log.add(RpcCall("Allocate", request))
    assert (len(call_log.calls), call_log.dropped) == (100, 5)
    assert call_log.calls[0].device_ids == (("5",),)
    assert call_log.wait_for("Allocate", 105, 0)
    assert not call_log.wait_for("Allocate", 106, 0)


def test_call_log_stores_at_most_64_mib():
    call_log = CallLog(100)
    request = dp.AllocateRequest()
    request.container_requests.add(devices_ids=["x" * (1 << 20)])
    for _ in range(70):
        call_log.add(RpcCall("Allocate", request))
    assert (len(call_log.calls), call_log.dropped) == (63, 7)


def test_image_is_built_from_existing_files():
    top = ROOT
    recipe = (top / "tools/simulated-plugin.Dockerfile").read_text().splitlines()
    copied = [part for line in recipe if line.startswith("COPY ") for part in line.split()[1:-1]]
    sources = [source for source in copied if not source.startswith(("/", "--"))]
    project = tomllib.loads((top / "pyproject.toml").read_text())
    assert all((top / source).exists() for source in sources)
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(sources)
    assert recipe[-1] == 'ENTRYPOINT ["/plugin/bin/devicemanager", "simulate"]'
    assert "devicemanager" in project["project"]["scripts"]


def test_settings_of_a_wrong_type_are_rejected():
    with pytest.raises(
        ConfigurationError, match=r"^invalid resource 5: use a name such as vendor\.com/gpu$"
    ):
        SimulationSettings(resource_name=5)
    with pytest.raises(
        TypeError, match=r"^expected settings such as SimulationSettings\(.*\), not 'ven"
    ):
        SimulatedPlugin("vendor.com/gpu", "/tmp")
