"""The simulated plugin with a kubelet: changes of devices, and faults."""

import os
import subprocess
import sys
import threading

import attrs
import grpc
import pytest

from devicemanager.plugin import UnknownDevice
from devicemanager.plugin import resource as resource_module
from devicemanager.plugin.simulated import (
    AllocateFault,
    ListFault,
    SimulatedError,
    SimulatedPlugin,
    SimulationSettings,
    simulate_main,
)
from devicemanager.plugin.simulated.service import CallLog
from protos import deviceplugin_v1beta1 as dp
from tests.plugin.stubkubelet import TIMEOUT, StubKubelet

GPU = "vendor.com/gpu"
A, B = "gpu-n-0", "gpu-n-1"


@pytest.fixture
def simulate(kubelet, fast):
    """Function that starts a plugin with some settings; it stops at the end of the test."""
    running = []

    def start(**settings):
        plugin = SimulatedPlugin(
            SimulationSettings(
                resource_name=GPU, node_name="n", device_id_prefix="gpu", **settings
            ),
            kubelet.directory,
            fast,
        )
        running.append(plugin)
        plugin.__enter__()
        return plugin

    yield start
    for plugin in running:
        plugin.__exit__()


def first_connection(kubelet):
    kubelet.wait(lambda k: k.connections, "a registration")
    return kubelet.connections[0]


def status_of(call, *args):
    with pytest.raises(grpc.RpcError) as error:
        call(*args)
    return error.value.code(), error.value.details()


def test_first_list_needs_no_thread(kubelet, simulate, monkeypatch):
    # The thread that reads `devices` publishes nothing.
    monkeypatch.setattr(resource_module, "consume", lambda *_: None)
    simulate()
    plugin = first_connection(kubelet)
    kubelet.wait(lambda _: plugin.lists, "a list")
    assert [device.ID for device in plugin.lists[0].devices] == [A, B]


def test_devices_can_be_changed_added_and_removed(kubelet, simulate):
    plugin = simulate(numa=(0, 1))
    kubelet.wait_devices({A: "Healthy", B: "Healthy"}, GPU)
    assert plugin.wait_registered()
    assert plugin.status.endpoint == "simple-device-plugin.sock"
    plugin.set_health(A, "Unhealthy")
    kubelet.wait_devices({A: "Unhealthy", B: "Healthy"}, GPU)
    plugin.set_health(A, True)
    plugin.remove(B)
    plugin.add("extra", healthy=False, numa=(3,))
    kubelet.wait_devices({A: "Healthy", "extra": "Unhealthy"}, GPU)
    assert [(d.id, d.healthy, d.numa) for d in plugin.devices] == [
        (A, True, (0,)),
        ("extra", False, (3,)),
    ]
    with pytest.raises(UnknownDevice, match=r"^unknown device nope: use one of gpu-n-0, extra"):
        plugin.set_health("nope", True)
    with pytest.raises(ValueError, match=r"^unknown health 'fine': use Healthy or Unhealthy"):
        plugin.set_health(A, "fine")
    empty = simulate(number_devices=0)
    with pytest.raises(UnknownDevice, match=r"^unknown device nope: the plugin has no devices$"):
        empty.remove("nope")
    kubelet.restart()
    kubelet.wait_devices({A: "Healthy", "extra": "Unhealthy"}, GPU)


def test_calls_are_logged_and_invalid_allocations_rejected(kubelet, simulate):
    plugin = simulate(env_prefix="GPU", pre_start=True, preferred_policy="reverse")
    connection = kubelet.plugin(GPU)
    response = connection.allocate([B, A])
    assert dict(response.container_responses[0].envs) == {"GPU_0": "/dev/0", "GPU_1": "/dev/1"}
    request = dp.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs=[A, B], allocation_size=1)
    preferred = connection.stub.GetPreferredAllocation(request)
    assert list(preferred.container_responses[0].deviceIDs) == [B]
    connection.stub.PreStartContainer(dp.PreStartContainerRequest(devices_ids=[A]))
    plugin.set_health(A, False)
    code, text = status_of(connection.allocate, [A])
    assert (code.name, text) == ("FAILED_PRECONDITION", f"device {A} is unhealthy")
    code, _ = status_of(connection.allocate, ["nope"])
    assert code.name == "NOT_FOUND"
    assert plugin.wait_for_call("Allocate", 3)
    assert [call.rpc for call in plugin.calls] == [
        "GetDevicePluginOptions",
        "ListAndWatch",
        "Allocate",
        "GetPreferredAllocation",
        "PreStartContainer",
        "Allocate",
        "Allocate",
    ]
    assert [call.device_ids for call in plugin.calls if call.device_ids] == [
        ((B, A),),
        ((A,),),
        ((A,),),
        (("nope",),),
    ]


def test_control_file_that_is_a_pipe_is_ignored(kubelet, simulate, tmp_path, caplog):
    control = tmp_path / "control"
    os.mkfifo(control)
    simulate(control_file=str(control))
    kubelet.wait_devices({A: "Healthy", B: "Healthy"})
    control.unlink()
    control.write_text(f"{A} Unhealthy\n")
    kubelet.wait_devices({A: "Unhealthy", B: "Healthy"})
    assert caplog.text.count(f"cannot read control file {control}: a pipe, not a regular file") == 1


def test_control_file_is_read_after_each_change(kubelet, simulate, tmp_path):
    control = tmp_path / "control"
    simulate(control_file=str(control))
    kubelet.wait_devices({A: "Healthy", B: "Healthy"}, GPU)
    control.write_text(f"{A} Unhealthy\n{B} gone\n")
    kubelet.wait_devices({A: "Unhealthy"}, GPU)
    with control.open("a") as file:
        file.write("extra Healthy\n")
    kubelet.wait_devices({A: "Unhealthy", "extra": "Healthy"}, GPU)
    # Editors and config maps replace the file.
    (tmp_path / "next").write_text(f"{B} Unhealthy\n")
    (tmp_path / "next").rename(control)
    kubelet.wait_devices({A: "Healthy", B: "Unhealthy"}, GPU)
    control.unlink()
    kubelet.wait_devices({A: "Healthy", B: "Healthy"}, GPU)


TABLE = {
    "PLUGIN_NAME": ("mine", {"endpoint": "mine.sock"}),
    "RESOURCE_NAME": ("vendor.com/gpu", {"resource": "vendor.com/gpu"}),
    "NUMBER_DEVICES": ("3", {"number": 3}),
    "DEVICE_ID_PREFIX": ("gpu", {"prefix": "gpu"}),
    "ANNOTATION_PREFIX": ("vendor.com/id", {"annotations": ["vendor.com/id-1"]}),
    "ENV_PREFIX": ("GPU", {"envs": {"GPU_1": "/dev/1"}}),
    "DEVICE_FILE_PREFIX": ("card", {"devices": [("/dev/card-1", "/dev/card-1", "rw")]}),
}
"""A value of each variable and its effect on the kubelet. NAMESPACE affects manifests only."""


@pytest.mark.parametrize("given", [[], *([name] for name in TABLE), list(TABLE)], ids="+".join)
def test_each_variable_reaches_the_kubelet(kubelet, fast, given):
    expected = {
        "endpoint": "simple-device-plugin.sock",
        "resource": "example.com/simple-device",
        "number": 2,
        "prefix": "simple-device",
        "annotations": [],
        "envs": {},
        "devices": [],
    }
    for name in given:
        expected |= TABLE[name][1]
    prefix = expected.pop("prefix")
    environ = {"NODE_NAME": "n"} | {name: TABLE[name][0] for name in given}
    with SimulatedPlugin(SimulationSettings.from_env(environ), kubelet.directory, fast):
        connection = kubelet.plugin(expected["resource"])
        listed = [f"{prefix}-n-{index}" for index in range(expected.pop("number"))]
        assert connection.devices == dict.fromkeys(listed, "Healthy")
        (response,) = connection.allocate(listed[1:2]).container_responses
    assert set(response.annotations.values()) <= set(listed[1:2])
    assert expected == {
        "endpoint": connection.request.endpoint,
        "resource": connection.request.resource_name,
        "annotations": list(response.annotations),
        "envs": dict(response.envs),
        "devices": [(d.host_path, d.container_path, d.permissions) for d in response.devices],
    }


def ids(connection):
    return [device.ID for device in connection.lists[0].devices]


@pytest.mark.parametrize(
    ("fault", "is_visible"),
    [
        ("duplicate-ids", lambda c: ids(c) == [A, B, A, B]),
        ("empty-id", lambda c: ids(c) == [A, B, ""]),
        ("unknown-health", lambda c: c.lists[0].devices[2].health == "Sick"),
        ("negative-numa", lambda c: c.lists[0].devices[2].topology.nodes[0].ID == -5),
        ("empty-topology", lambda c: c.lists[0].devices[2].HasField("topology")),
        ("huge", lambda c: len(set(ids(c))) == 100_000),
        ("flood", lambda c: len(c.lists) > 50),
        ("close", lambda c: c.ended and len(c.lists) == 1),
        ("abort", lambda c: c.ended and len(c.lists) == 1),
        ("garbage", lambda c: c.ended and not c.lists),
        ("oversize", lambda c: c.ended and not c.lists),
    ],
)
def test_list_faults(kubelet, simulate, fault, is_visible):
    simulate(list_fault=fault)
    connection = first_connection(kubelet)
    kubelet.wait(
        lambda _k: (connection.lists or connection.ended) and is_visible(connection), fault
    )


def test_silent_stream_stays_open_without_a_list(kubelet, simulate):
    plugin = simulate(list_fault=ListFault.SILENT)
    connection = first_connection(kubelet)
    assert plugin.wait_for_call("ListAndWatch")
    plugin.set_health(A, False)
    assert connection.allocate([B]).container_responses
    assert not connection.lists and not connection.ended


def test_closed_stream_is_followed_by_another_registration(kubelet, simulate):
    plugin = simulate(list_fault="close")
    kubelet.wait(lambda k: len(k.requests) >= 3, "a third registration")
    plugin.faults.clear()
    kubelet.plugin(GPU)


def test_allocate_faults(kubelet, simulate):
    plugin = simulate(allocate_fault="no-responses")
    connection = kubelet.plugin(GPU)
    assert not connection.allocate([A]).container_responses
    plugin.faults.allocate = AllocateFault.EXTRA_RESPONSE
    assert len(connection.allocate([A]).container_responses) == 2
    plugin.faults.allocate = AllocateFault.GARBAGE
    status_of(connection.allocate, [A])
    plugin.faults.allocate = AllocateFault.HANG
    request = dp.AllocateRequest()
    request.container_requests.add(devices_ids=[A])
    hanging = connection.stub.Allocate.future(request)
    assert plugin.wait_for_call("Allocate", 4)
    plugin.faults.clear()
    assert len(connection.allocate([A]).container_responses) == 1
    assert not hanging.done()


def test_changed_faults_apply_to_the_next_call(kubelet, simulate, monkeypatch):
    """Also if a test changes them as soon as a call is in the log."""
    plugin = simulate(allocate_fault="extra-response")
    connection = kubelet.plugin(GPU)
    add = CallLog.add

    def add_and_clear(call_log, call):
        add(call_log, call)
        plugin.faults.clear()

    monkeypatch.setattr(CallLog, "add", add_and_clear)
    assert len(connection.allocate([A]).container_responses) == 2
    assert len(connection.allocate([A]).container_responses) == 1


@pytest.mark.parametrize(
    ("policy", "preferred"),
    [
        ("lexical", [A]),
        ("reverse", [B]),
        ("short", []),
        ("garbage", ["not-a-device-0", "not-a-device-1", "not-a-device-2"]),
    ],
)
def test_preferred_policies(kubelet, simulate, policy, preferred):
    simulate(preferred_policy=policy)
    connection = kubelet.plugin(GPU)
    assert connection.options.get_preferred_allocation_available
    assert not connection.options.pre_start_required
    request = dp.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs=[B, A], allocation_size=1)
    (container,) = connection.stub.GetPreferredAllocation(request).container_responses
    assert list(container.deviceIDs) == preferred


def test_preferred_policy_error_fails_the_call(kubelet, simulate):
    simulate(preferred_policy="error")
    request = dp.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs=[A], allocation_size=1)
    code, text = status_of(kubelet.plugin(GPU).stub.GetPreferredAllocation, request)
    assert (code.name, text) == ("UNKNOWN", "simulated failure of the preferred allocation")


def test_errors_and_delays_of_any_rpc(kubelet, simulate):
    plugin = simulate(rpc_errors="Allocate=RESOURCE_EXHAUSTED:too much", pre_start=True)
    connection = kubelet.plugin(GPU)
    code, text = status_of(connection.allocate, [A])
    assert (code.name, text) == ("RESOURCE_EXHAUSTED", "too much")
    plugin.faults.clear()
    assert connection.allocate([A]).container_responses
    plugin.faults.delays["PreStartContainer"] = 0.05
    plugin.faults.errors["PreStartContainer"] = SimulatedError("ABORTED")
    start = dp.PreStartContainerRequest(devices_ids=[A])
    code, text = status_of(connection.stub.PreStartContainer, start)
    assert (code.name, text) == ("ABORTED", "simulated")
    plugin.faults.delays["PreStartContainer"] = 3600
    hanging = connection.stub.PreStartContainer.future(start)
    assert plugin.wait_for_call("PreStartContainer", 2)
    hanging.cancel()


def test_failing_options_prevent_the_registration(kubelet, simulate):
    plugin = simulate(rpc_errors="GetDevicePluginOptions=INTERNAL")
    kubelet.wait(lambda k: len(k.requests) >= 2, "a second attempt")
    assert not kubelet.connections
    plugin.faults.clear()
    kubelet.plugin(GPU)


def test_two_plugins_with_one_name_share_a_directory(directory, fast):
    with StubKubelet(directory) as kubelet:
        one, other = (
            SimulatedPlugin(SimulationSettings(resource_name=name), directory, fast)
            for name in ("vendor.com/gpu", "vendor.com/nic")
        )
        with one, other:
            kubelet.plugin("vendor.com/gpu")
            kubelet.plugin("vendor.com/nic")
            assert one.wait_registered() and other.wait_registered()
            assert one.status.endpoint != other.status.endpoint


def test_module_runs_until_sigterm(kubelet):
    environment = os.environ | {"RESOURCE_NAME": GPU, "NUMBER_DEVICES": "5", "NODE_NAME": "n"}
    command = [sys.executable, "-m", "devicemanager.plugin.simulated"]
    flags = ["--directory", str(kubelet.directory), "--number-devices", "1", "--id-shape", "pci"]
    with subprocess.Popen([*command, *flags], env=environment) as process:
        try:
            kubelet.wait_devices({"0000:01:00.0": "Healthy"}, GPU)
            process.terminate()
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()
    assert [entry.name for entry in kubelet.directory.iterdir()] == ["kubelet.sock"]


def test_invalid_setting_is_a_one_line_error(capsys):
    assert simulate_main(["--resource-name", "gpu"]) == 2
    assert capsys.readouterr().err == (
        "devicemanager simulate: error: invalid resource name 'gpu': it has no domain: use a "
        "name such as vendor.com/gpu\n"
    )


def test_import_loads_neither_kubernetes_nor_yaml():
    program = (
        "import sys, devicemanager.plugin.simulated;"
        "sys.exit('kubernetes' in sys.modules or 'yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    program = "import sys, devicemanager.plugin; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_start_and_stop_work_without_a_with_block(kubelet, fast):
    plugin = SimulatedPlugin(SimulationSettings(resource_name=GPU), kubelet.directory, fast)
    assert plugin.start() is plugin
    assert plugin.wait_registered()
    plugin.stop()
    plugin.stop()
    assert [entry.name for entry in kubelet.directory.iterdir()] == ["kubelet.sock"]


def test_help_shows_variables_and_defaults(capsys):
    with pytest.raises(SystemExit):
        simulate_main(["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "--directory DEVICE_PLUGIN_DIRECTORY the kubelet's plugin directory (default: /" in words
    assert "--number-devices NUMBER_DEVICES number of devices (default: 2)" in words
    assert (
        "--pre-start PRE_START require PreStartContainer: true or false (default: false)" in words
    )
    assert words.count("(default:") == len(attrs.fields(SimulationSettings)) + 2


def test_no_thread_is_left_running(directory, fast):
    before = set(threading.enumerate())
    settings = SimulationSettings(resource_name=GPU)
    with StubKubelet(directory) as kubelet, SimulatedPlugin(settings, directory, fast):
        kubelet.plugin(GPU)
    for thread in set(threading.enumerate()) - before:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), thread
