"""A recorder between kubelets and plugins: forwarding, recording, restarts of both sides."""

import io
import json
import threading

import grpc
import pytest

from devicemanager.plugin.recording import EndedBy, Recorder, Recording, RecordingError
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from podresources.sockets import target
from protos import deviceplugin_v1beta1 as dp
from tests.plugin.recording.conftest import GPU, TIMEOUT, RawPlugin, devices, hold
from tests.timing import wait_until

ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
UNKNOWN_FIELD = b"\xfa\x7e\x03new"
"""Field 2031 of a later version of the API."""


@pytest.fixture
def call_plugin(kubelet):
    """Function that calls the plugin's proxy with raw bytes: ``call_plugin(ALLOCATE, request)``."""
    with grpc.insecure_channel(target(kubelet.directory / "gpu.sock")) as channel:

        def call(method, request, **options):
            return channel.unary_unary(method).with_call(
                request, **{"timeout": TIMEOUT, "wait_for_ready": True, **options}
            )

        yield call


def simulation(**fields):
    return SimulationSettings(
        **{"resource_name": GPU, "plugin_name": "gpu", "env_prefix": "GPU", **fields}
    )


def recorded(recorder, directory):
    recorder.stop()
    return Recording.load(directory / "r.ndjson")


def test_every_byte_is_forwarded_and_recorded(
    directory, kubelet, recorder, raw_plugin, call_plugin
):
    expected = dp.AllocateResponse().SerializeToString() + UNKNOWN_FIELD
    request = (
        dp.AllocateRequest(
            container_requests=[dp.ContainerAllocateRequest(devices_ids=["gpu-0"])]
        ).SerializeToString()
        + UNKNOWN_FIELD
    )

    def allocate(_request, context):
        context.send_initial_metadata((("x-driver", "550"),))
        context.set_trailing_metadata((("x-took-bin", b"\0\1"),))
        yield expected

    plugin = raw_plugin(Allocate=allocate)
    plugin.register(options=dp.DevicePluginOptions(pre_start_required=True))
    assert kubelet.plugin().devices == {"gpu-0": "Healthy"}
    response, call = call_plugin(ALLOCATE, request, metadata=(("x-trace", "7"),))

    assert response == expected
    assert dict(call.initial_metadata())["x-driver"] == "550"
    assert dict(call.trailing_metadata())["x-took-bin"] == b"\0\1"
    rpc, received, metadata = plugin.received[-1]
    assert (rpc, received, metadata["x-trace"]) == ("Allocate", request, "7")

    recording = recorded(recorder, directory)
    assert recording.kubelet_dir == str(kubelet.directory)
    assert recording.resources == (GPU,)
    [registration] = recording.registrations(GPU)
    assert registration.register.request["options"]["pre_start_required"] is True
    assert registration.register.direction == "to-kubelet"
    options, allocate = registration.calls
    assert options.rpc == "GetDevicePluginOptions"
    assert (allocate.request_bytes, allocate.response_bytes) == (request, expected)
    assert allocate.request == {"container_requests": [{"devices_ids": ["gpu-0"]}]}
    assert (allocate.code, allocate.ended_by, allocate.plugin) == ("OK", "plugin", "gpu.sock")
    [stream] = registration.streams
    assert [each.response_bytes for each in stream.lists] == [devices("gpu-0")]
    assert stream.end.ended_by is EndedBy.RECORDER
    numbers = [call.number for call in recording.calls]
    assert numbers == list(range(1, len(numbers) + 1))


def test_status_is_forwarded_with_its_details(directory, recorder, raw_plugin, call_plugin):
    def allocate(_request, context):
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x05"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "no device gpu-9 ✗")
        yield b""

    raw_plugin(Allocate=allocate).register()
    with pytest.raises(grpc.RpcError) as caught:
        call_plugin(ALLOCATE, b"")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "no device gpu-9 ✗"
    assert dict(caught.value.trailing_metadata())["grpc-status-details-bin"] == b"\x08\x05"

    with pytest.raises(grpc.RpcError) as caught:
        call_plugin("/v1beta1.DevicePlugin/Invented", b"\x01")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    *_, allocate, invented = recorded(recorder, directory).registrations(GPU)[0].calls
    assert (allocate.code, allocate.message) == ("NotFound", "no device gpu-9 ✗")
    assert (allocate.response, allocate.ended_by) == (None, EndedBy.PLUGIN)
    assert (invented.rpc, invented.request) == ("Invented", {"undecodable": "AQ=="})


def test_deadline_and_cancellation_are_forwarded(
    directory, kubelet, recorder, raw_plugin, call_plugin
):
    left, ended = [], threading.Event()

    def allocate(_request, context):
        left.append(context.time_remaining())
        yield from hold(context)

    def lists(_request, context):
        yield from hold(context, devices("gpu-0"))
        ended.set()

    raw_plugin(Allocate=allocate, ListAndWatch=lists).register()
    with pytest.raises(grpc.RpcError) as caught:
        call_plugin(ALLOCATE, b"", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0 < left[0] < TIMEOUT
    kubelet.plugin().cut()
    assert ended.wait(TIMEOUT)
    # Options, Register, a list, and the ends of Allocate and the stream.
    wait_until(lambda: recorder.calls == 5)
    [registration] = recorded(recorder, directory).registrations(GPU)
    assert registration.calls[-1].ended_by is EndedBy.KUBELET
    assert registration.calls[-1].response is None
    assert registration.streams[0].end.ended_by is EndedBy.KUBELET


def test_rejection_by_the_kubelet_is_forwarded(directory, kubelet, recorder, raw_plugin):
    kubelet.reject = "not today"
    plugin = raw_plugin()
    with pytest.raises(grpc.RpcError, match="not today"):
        plugin.register()
    # Invalid requests and endpoints are forwarded: the kubelet rejects them.
    for request in (b"\xff", dp.RegisterRequest(endpoint="../x").SerializeToString()):
        with pytest.raises(grpc.RpcError):
            plugin.register_bytes(request)
    recording = recorded(recorder, directory)
    [rejected] = recording.registrations(GPU)
    assert (rejected.register.code, rejected.register.message) == ("Unknown", "not today")
    assert recording.calls[1].request == {"undecodable": "/w=="}
    assert kubelet.requests[-1].endpoint == "../x"


def test_both_sides_can_restart(directory, plugin_dir, mock_kubelet):
    path = directory / "r.ndjson"
    with Recorder(path, mock_kubelet.plugin_dir, plugin_dir) as recorder:
        with SimulatedPlugin(simulation(), plugin_dir) as plugin:
            mock_kubelet.wait_for_resource(GPU, 2)
            assert sorted(each.name for each in plugin_dir.iterdir()) == [
                "gpu.sock",
                "kubelet.sock",
            ]
            assert mock_kubelet.admit(pod_manifest("a", {GPU: 1})).admitted
            mock_kubelet.restart()
            mock_kubelet.wait_for_resource(GPU, 2)
            plugin.set_health(plugin.devices[0].id, False)
            mock_kubelet.wait_for_resource(GPU, 1)
        mock_kubelet.wait_for_resource(GPU, 0)
        with SimulatedPlugin(simulation(number_devices=3), plugin_dir):
            mock_kubelet.wait_for_resource(GPU, 3)
            assert mock_kubelet.admit(pod_manifest("b", {GPU: 2})).admitted
            recorder.stop()
    assert not (mock_kubelet.plugin_dir / "gpu.sock").exists()
    first, second, third = Recording.load(path).registrations(GPU)
    assert [each.register.kubelet for each in (first, second, third)] == [1, 2, 2]
    assert [call.rpc for call in first.calls] == ["GetDevicePluginOptions", "Allocate"]
    assert first.streams[0].end.ended_by is EndedBy.KUBELET
    healthy = [
        [device["health"] == "Healthy" for device in each.response["devices"]]
        for each in second.streams[0].lists
    ]
    assert healthy == [[True, True], [False, True]]
    assert second.streams[0].end.ended_by is EndedBy.PLUGIN
    assert [call.rpc for call in third.calls] == ["GetDevicePluginOptions", "Allocate"]
    assert third.streams[0].end.ended_by is EndedBy.RECORDER


def test_socket_removed_on_one_side_is_removed_on_the_other(
    kubelet, recorder, raw_plugin, plugin_dir
):
    raw_plugin().register()
    proxy = kubelet.directory / "gpu.sock"
    assert kubelet.plugin() and proxy.is_socket()
    (plugin_dir / "gpu.sock").unlink()
    kubelet.wait_for_path(proxy, there=False)
    assert kubelet.plugin().devices == {"gpu-0": "Healthy"}  # the stream continues

    raw_plugin().register()
    kubelet.wait_for_path(proxy, there=True)
    kubelet.restart()
    kubelet.wait_for_path(plugin_dir / "gpu.sock", there=False)


def test_socket_for_plugins_ends_with_the_kubelet_and_with_the_recorder(
    kubelet, recorder, plugin_dir
):
    path = plugin_dir / "kubelet.sock"
    assert path.is_socket()
    (kubelet.directory / "kubelet.sock").unlink()
    kubelet.wait_for_path(path, there=False)
    kubelet.restart()
    kubelet.wait_for_path(path, there=True)
    recorder.stop()
    assert not path.exists()


def test_socket_of_another_recorder_is_kept(recorder, plugin_dir):
    path = plugin_dir / "kubelet.sock"
    path.unlink()
    path.touch()
    recorder.stop()
    assert path.exists()


def test_plugin_with_the_same_name_replaces_another(kubelet, recorder, raw_plugin):
    raw_plugin().register()
    assert kubelet.plugin().devices == {"gpu-0": "Healthy"}
    second = raw_plugin(ListAndWatch=lambda _request, context: hold(context, devices("gpu-1")))
    second.register()
    kubelet.wait_devices({"gpu-1": "Healthy"})


def test_registration_waits_for_a_plugin_that_serves_late(kubelet, recorder, plugin_dir):
    plugin = RawPlugin(plugin_dir)
    registered = threading.Thread(target=plugin.register)
    registered.start()
    try:
        kubelet.wait(lambda stub: stub.requests or plugin.serve(), "the registration")
        registered.join(TIMEOUT)
        assert kubelet.plugin().devices == {"gpu-0": "Healthy"}
    finally:
        plugin.stop()


def test_values_of_variables_can_be_redacted(directory, plugin_dir, kubelet, raw_plugin):
    response = dp.AllocateResponse()
    response.container_responses.add(envs={"API_TOKEN": "s3cret", "GPU_0": "/dev/0"})
    path = directory / "r.ndjson"
    with Recorder(path, kubelet.directory, plugin_dir, redact_env=["TOKEN", "^X"]):
        raw_plugin(Allocate=response.SerializeToString()).register()
        forwarded = kubelet.plugin().allocate(["gpu-0"])
    assert forwarded.container_responses[0].envs["API_TOKEN"] == "s3cret"
    text = path.read_text()
    assert json.loads(text.splitlines()[0])["redact_env"] == ["TOKEN", "^X"]
    assert "s3cret" not in text and "czNjcmV0" not in text
    call = Recording.load(path).registrations(GPU)[0].calls[-1]
    [container] = call.response["container_responses"]
    assert container["envs"] == {"API_TOKEN": "REDACTED", "GPU_0": "/dev/0"}
    assert call.redacted == ("API_TOKEN",)


def test_undecodable_response_is_redacted_completely(
    directory, plugin_dir, kubelet, raw_plugin, call_plugin
):
    path = directory / "r.ndjson"
    with Recorder(path, kubelet.directory, plugin_dir, redact_env=["TOKEN"]):
        raw_plugin(Allocate=b"\x0a\x05TOKEN=s3cret").register()
        assert call_plugin(ALLOCATE, b"")[0] == b"\x0a\x05TOKEN=s3cret"
    call = Recording.load(path).registrations(GPU)[0].calls[-1]
    assert (call.response_bytes, call.redacted) == (b"", ("REDACTED",))


def test_other_resources_are_forwarded_unrecorded(directory, plugin_dir, kubelet, raw_plugin):
    path = directory / "r.ndjson"
    with Recorder(path, kubelet.directory, plugin_dir, resources=["vendor.com/nic"]) as recorder:
        raw_plugin().register()
        assert kubelet.plugin().devices == {"gpu-0": "Healthy"}
        assert recorder.calls == 0
    assert Recording.load(path).calls == ()


def test_full_disk_stops_only_the_recording(plugin_dir, kubelet, raw_plugin):
    reports = []
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a path would be a new file
        recorder = Recorder(full, kubelet.directory, plugin_dir, report=reports.append).start()
        raw_plugin().register()
        assert kubelet.plugin().devices == {"gpu-0": "Healthy"}
        with pytest.raises(RecordingError, match=r"^the recording is incomplete: No space left"):
            recorder.stop()
        recorder.stop()
        with pytest.raises(OSError):
            full.close()
    assert sum("cannot write the recording" in line for line in reports) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"kubelet_dir": "/nowhere"}, "^/nowhere is not a directory"),
        ({"plugin_dir": "/nowhere"}, "^/nowhere is not a directory"),
        ({"plugin_dir": "/tmp", "in_place": True}, "^use either in_place or plugin_dir, not both$"),
        ({"redact_env": ["("]}, r"^invalid regular expression '\(': "),
    ],
)
def test_invalid_arguments_are_rejected(directory, arguments, text):
    arguments = {"kubelet_dir": directory, **arguments}
    with pytest.raises(RecordingError, match="^" + text):
        Recorder(directory / "r", **arguments)


def test_existing_file_is_never_overwritten(directory, plugin_dir, kubelet):
    path = directory / "r.ndjson"
    path.write_text("precious")
    with pytest.raises(RecordingError, match=r"already exists: use another file$"):
        Recorder(path, kubelet.directory, plugin_dir).start()
    with pytest.raises(RecordingError, match=r"^cannot write /nowhere/r: No such file"):
        Recorder("/nowhere/r", kubelet.directory, plugin_dir).start()
    with pytest.raises(
        RecordingError, match=r"is the kubelet's directory: use another directory for plugin_dir$"
    ):
        Recorder(path, kubelet.directory, kubelet.directory)
    assert path.read_text() == "precious"


def test_recorder_that_never_started_can_be_stopped(directory, kubelet):
    file = directory / "r.ndjson"
    recorder = Recorder(file, kubelet.directory)
    assert recorder.calls == 0
    recorder.stop()
    recorder.stop()
    assert not recorder.plugin_dir.exists() and not file.exists()


def test_failed_start_removes_the_plugin_directory(directory, kubelet):
    recorder = Recorder("/nowhere/r", kubelet.directory)
    with pytest.raises(RecordingError, match=r"^cannot write /nowhere/r: No such file"):
        recorder.start()
    assert not recorder.plugin_dir.exists()
    assert recorder.calls == 0
    with pytest.raises(RecordingError, match=r"^a recorder cannot be started again"):
        recorder.start()
    recorder.stop()


def test_file_that_takes_no_text_ends_the_start(kubelet):
    recorder = Recorder(io.BytesIO(), kubelet.directory)
    with pytest.raises(TypeError):
        recorder.start()
    assert not recorder.plugin_dir.exists()
    assert recorder.calls == 0
    recorder.stop()


def test_closed_file_stops_only_the_recording(plugin_dir, kubelet, raw_plugin):
    reports, file = [], io.StringIO()
    recorder = Recorder(file, kubelet.directory, plugin_dir, report=reports.append).start()
    file.close()
    raw_plugin().register()
    assert kubelet.plugin().devices == {"gpu-0": "Healthy"}
    with pytest.raises(RecordingError, match=r"^the recording is incomplete: I/O operation on cl"):
        recorder.stop()
    assert sum("cannot write the recording" in line for line in reports) == 1


def test_recorder_starts_only_once(directory, kubelet, recorder):
    with pytest.raises(RecordingError, match=r"^a recorder cannot be started again: create anoth"):
        recorder.start()
    assert recorder.plugin_dir.exists()
    recorder.stop()
    # A path would only give the error that the file exists.
    again = Recorder(io.StringIO(), kubelet.directory)
    for _ in range(2):
        again.stop()
        with pytest.raises(RecordingError, match=r"^a recorder cannot be started again"):
            again.start()


def test_full_disk_below_a_path(directory, kubelet, monkeypatch):
    monkeypatch.setattr("devicemanager.plugin.recording.writer.open_new", full_disk)
    recorder = Recorder(directory / "r", kubelet.directory).start()
    with pytest.raises(RecordingError, match=r"^the recording is incomplete: No space left"):
        recorder.stop()
    assert not recorder.plugin_dir.exists()


def full_disk(_path):
    return open("/dev/full", "w")  # noqa: PTH123 - closed by the recorder
