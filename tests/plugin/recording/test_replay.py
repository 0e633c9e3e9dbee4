"""A plugin that responds from a recording: content, time, and requests that were not recorded."""

import json

import attrs
import grpc
import pytest

from devicemanager.plugin.recording import (
    SCHEMA,
    EndedBy,
    NotRecorded,
    RecordedCall,
    Recorder,
    Recording,
    RecordingError,
    ReplayPlugin,
)
from devicemanager.plugin.recording.calls import line_of
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from protos import deviceplugin_v1beta1 as dp
from tests.plugin.recording.conftest import GPU, devices


class RecordingBuilder:
    """Writes a recording call by call."""

    def __init__(self, path):
        self.path = path
        self.calls = []
        self.registrations = 0
        self.streams = 0

    def register(self, at=0.0, kubelet=1, code="OK", **options):
        self.registrations += 1
        request = dp.RegisterRequest(
            version="v1beta1", endpoint="gpu.sock", resource_name=GPU, options=options
        )
        self._add(
            kubelet=kubelet,
            direction="to-kubelet",
            rpc="Register",
            time=at,
            request_bytes=request.SerializeToString(),
            response_bytes=b"",
            code=code,
            ended_by=EndedBy.KUBELET,
        )
        return self

    def stream(self, *lists, code="OK", ended_by=EndedBy.KUBELET, lasted=10.0):
        """Add a stream; ``lists`` are pairs of seconds and bytes."""
        self.streams += 1
        for number, (after, content) in enumerate(lists, start=1):
            self._add(
                rpc="ListAndWatch",
                response_bytes=content,
                duration=after,
                stream=self.streams,
                stream_message=number,
            )
        self._add(
            rpc="ListAndWatch",
            stream=self.streams,
            code=code,
            ended_by=ended_by,
            duration=lasted,
        )
        return self

    def allocate(self, ids, *envs, code="OK", message="", ended_by=EndedBy.PLUGIN, duration=0.0):
        """Add an Allocate of a container; ``envs`` are names of variables in the response."""
        request = dp.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        response = dp.AllocateResponse()
        response.container_responses.add(envs=dict.fromkeys(envs, "1"))
        return self.call("Allocate", request, response, code, message, ended_by, duration)

    def call(self, rpc, request, response, code="OK", message="", ended_by="plugin", duration=0.0):
        self._add(
            rpc=rpc,
            request_bytes=request.SerializeToString(),
            response_bytes=response.SerializeToString() if code == "OK" else None,
            code=code,
            message=message,
            ended_by=EndedBy(ended_by),
            duration=duration,
        )
        return self

    def _add(self, **fields):
        fields = {
            "kubelet": self.calls[-1].kubelet if self.calls else 1,
            "number": len(self.calls) + 1,
            "registration": self.registrations,
            "resource": GPU,
            "plugin": "gpu.sock",
            "direction": "to-plugin",
            "time": 0.0,
            "request_bytes": b"",
            **fields,
        }
        self.calls.append(RecordedCall(**fields))

    def write(self):
        lines = [json.dumps({"schema": SCHEMA}), *map(line_of, self.calls)]
        self.path.write_text("\n".join(lines) + "\n")
        return Recording.load(self.path)


@pytest.fixture
def builder(tmp_path):
    return RecordingBuilder(tmp_path / "r.ndjson")


@pytest.fixture
def replay(kubelet):
    """Function that serves a recording to ``kubelet`` until the end of the test."""
    plugins = []

    def start(recording, **options):
        plugins.append(ReplayPlugin(recording, kubelet.directory, **options).start())
        return plugins[-1]

    yield start
    for plugin in plugins:
        plugin.stop()


def envs(response):
    return [sorted(each.envs) for each in response.container_responses]


def test_replay_reproduces_a_recording(directory, plugin_dir, mock_kubelet, make_mock_kubelet):
    path = directory / "r.ndjson"
    settings = SimulationSettings(
        resource_name=GPU,
        number_devices=3,
        plugin_name="gpu",
        env_prefix="GPU",
        pre_start=True,
        preferred_policy="reverse",
    )

    def outcome(kubelet):
        admissions = [kubelet.admit(pod_manifest(name, {GPU: 1}, uid=name)) for name in "ab"]
        options = [each.containers["main"].run_options for each in admissions]
        health = kubelet.allocated_resources_status("a")["main"]
        return options, kubelet.devices("a"), kubelet.devices("b"), health

    with (
        Recorder(path, mock_kubelet.plugin_dir, plugin_dir) as recorder,
        SimulatedPlugin(settings, plugin_dir),
    ):
        mock_kubelet.wait_for_resource(GPU, 3)
        recorded = outcome(mock_kubelet)
        recorder.stop()
    second = make_mock_kubelet()
    with ReplayPlugin(path, second.plugin_dir) as plugin:
        second.wait_for_resource(GPU, 3)
        assert outcome(second) == recorded
        plugin.check()
        rejected = second.admit(pod_manifest("c", {GPU: 1}))
    request = "GetPreferredAllocation of 1 of simple-device"
    expected = f"{request}-{settings.node_name}-0 was not recorded; most similar: {request}"
    assert expected in rejected.message


def test_repeated_request_gets_its_responses_in_turn(kubelet, builder, replay):
    builder.register().stream((0, devices("a", "b")))
    builder.allocate(["a", "b"], "FIRST").allocate(["b", "a"], "SECOND")
    builder.allocate(["a"], code="NotFound", message="no a ✗")
    replay(builder.write())
    plugin = kubelet.plugin()
    assert [envs(plugin.allocate(["b", "a"])) for _ in range(3)] == [
        [["FIRST"]],
        [["SECOND"]],
        [["SECOND"]],
    ]
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            plugin.allocate(["a"])
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "no a ✗"


def test_call_without_a_recorded_response_gets_none(kubelet, builder, replay):
    builder.register().stream((0, devices("a")))
    builder.allocate(["a"], code="DeadlineExceeded", ended_by=EndedBy.KUBELET)
    replay(builder.write())
    request = dp.AllocateRequest()
    request.container_requests.add(devices_ids=["a"])
    with pytest.raises(grpc.RpcError) as caught:
        kubelet.plugin().stub.Allocate(request, timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_request_that_was_not_recorded_fails_and_is_listed(kubelet, builder, replay):
    preferred = dp.PreferredAllocationRequest()
    preferred.container_requests.add(available_deviceIDs=["a", "b"], allocation_size=1)
    builder.register().stream((0, devices("a", "b", "c")))
    builder.allocate(["a", "b"]).allocate(["c"])
    builder.call("GetPreferredAllocation", preferred, dp.PreferredAllocationResponse())
    reported = []
    replayed = replay(builder.write(), on_miss=reported.append)
    stub = kubelet.plugin().stub
    preferred.container_requests[0].allocation_size = 2
    preferred.container_requests[0].must_include_deviceIDs.append("a")
    requests = [
        (stub.Allocate, dp.AllocateRequest(container_requests=[{"devices_ids": ["a", "c"]}])),
        (stub.GetPreferredAllocation, preferred),
        (stub.PreStartContainer, dp.PreStartContainerRequest(devices_ids=["a"])),
    ]
    for call, request in requests:
        with pytest.raises(grpc.RpcError) as caught:
            call(request)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    lines = [
        "Allocate of a, c was not recorded; most similar: Allocate of c",
        "GetPreferredAllocation of 2 of a, b with a was not recorded; most similar: "
        "GetPreferredAllocation of 1 of a, b",
        "PreStartContainer of a was not recorded; no PreStartContainer was recorded",
    ]
    assert [str(miss) for miss in replayed.misses] == lines
    assert reported == list(replayed.misses)
    assert reported[0].nearest == {"container_requests": [{"devices_ids": ["c"]}]}
    assert reported[2].nearest is None and reported[2].request == {"devices_ids": ["a"]}
    with pytest.raises(NotRecorded, match=r"^vendor.com/gpu: Allocate of a, c was not recorded"):
        replayed.check()


def test_lists_are_sent_in_recorded_order(kubelet, builder, replay):
    lists = [devices("a"), devices("a", "b"), devices("a", health="Unhealthy")]
    builder.register(pre_start_required=True).stream(*((n, each) for n, each in enumerate(lists)))
    replay(builder.write())
    kubelet.wait_devices({"a": "Unhealthy"})
    assert [each.SerializeToString() for each in kubelet.plugin().lists] == lists
    assert kubelet.plugin().options.pre_start_required  # as in Register: there was no call


def test_recorded_crash_and_registration_are_replayed(kubelet, builder, replay):
    gone = {"code": "Unavailable", "ended_by": EndedBy.PLUGIN}
    builder.register(at=1.0).stream((0, devices("a")), **gone)
    builder.register(at=20.0).stream((0, devices("b")))
    builder.register(at=40.0).stream((0, devices("c")), **gone)
    replay(builder.write())
    # The kubelet ended the second stream only because of the third registration.
    kubelet.wait_devices({"c": "Healthy"})
    assert [each.lists[0].devices[0].ID for each in kubelet.connections] == ["a", "b", "c"]
    # The last registration: it stays, and sends its last list again after a kubelet restart.
    kubelet.restart()
    kubelet.wait_devices({"c": "Healthy"})


def test_registration_with_the_next_kubelet_waits_for_it(kubelet, builder, replay):
    builder.register().stream((0, devices("a")))
    builder.register(kubelet=2, at=20.0).stream((0, devices("b")))
    replay(builder.write())
    kubelet.wait_devices({"a": "Healthy"})
    kubelet.restart()
    kubelet.wait_devices({"b": "Healthy"})


def test_speed_divides_recorded_times(kubelet, builder, replay, monkeypatch):
    from devicemanager.plugin.lists import DeviceList

    waited, pause = [], DeviceList.pause

    def wait(self, seconds, ended):
        waited.append(seconds)
        pause(self, min(seconds, 0.01), ended)

    monkeypatch.setattr(DeviceList, "pause", wait)
    builder.register().stream((0.5, devices("a")), (60.5, devices("b")), lasted=100.0)
    replay(builder.write(), speed=4)
    kubelet.wait_devices({"b": "Healthy"})
    assert waited == [0.125, 15.0]


def test_rejected_registration_is_replayed(kubelet, builder, replay):
    builder.register(code="Unknown").write()
    replay(builder.path)
    kubelet.wait(lambda stub: stub.requests)


INVALID = {
    "nothing": ("", "no schema in its first line"),
    "another file": ('{"a": 1}\n', "no schema in its first line"),
    "a later version": (
        '{"schema": "devicemanager.recording/v2"}\n',
        "schema is 'devicemanager",
    ),
    "no JSON": ("{\n", r"r\.ndjson:1: not JSON: "),
    "no object": ("[]\n", r"r\.ndjson:1: not a JSON object$"),
}


@pytest.mark.parametrize(("text", "error"), INVALID.values(), ids=INVALID)
def test_file_that_is_not_a_recording_is_rejected(tmp_path, text, error):
    (tmp_path / "r.ndjson").write_text(text)
    with pytest.raises(RecordingError, match=error):
        Recording.load(tmp_path / "r.ndjson")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"number": None}, ":2: not a recorded call: number is None: expected int$"),
        ({"request_bytes": "?"}, ":2: not a recorded call: Only base64 data is allowed$"),
        ({"ended_by": "pilot"}, ":2: not a recorded call: 'pilot' is not a valid EndedBy$"),
    ],
)
def test_invalid_line_is_named(builder, change, error):
    line = json.loads(line_of(builder.register().calls[0]))
    builder.path.write_text(f"{json.dumps({'schema': SCHEMA})}\n{json.dumps(line | change)}\n")
    with pytest.raises(RecordingError, match=error):
        Recording.load(builder.path)


def test_truncated_recording_with_unknown_fields_is_loaded(builder):
    whole = builder.register().stream((0, devices("a"))).write()
    assert not whole.is_truncated
    lines = [
        json.dumps(json.loads(each) | {"later": 1})
        for each in builder.path.read_text().splitlines()
    ]
    builder.path.write_text("\n".join(lines) + '\n{"numb')
    cut = Recording.load(builder.path)
    assert cut.is_truncated
    assert cut == attrs.evolve(whole, is_truncated=True)


def test_invalid_replays_are_rejected(tmp_path, builder):
    recording = builder.register().write()
    for options, error in [
        (
            {"resource": "vendor.com/nic"},
            r"does not have vendor.com/nic: use one of vendor.com/gpu$",
        ),
        ({"speed": 0}, "^invalid speed 0: expected a number above 0$"),
    ]:
        with pytest.raises(RecordingError, match=error):
            ReplayPlugin(recording, tmp_path, **options)
    with pytest.raises(RecordingError, match=r"^[^:]*: No such file or directory$"):
        ReplayPlugin(tmp_path / "none")
    empty = RecordingBuilder(tmp_path / "empty").write()
    with pytest.raises(
        RecordingError, match=r"no plugin has registered in this recording: use another recording$"
    ):
        ReplayPlugin(empty)
    builder.calls.append(attrs.evolve(builder.calls[0], resource="vendor.com/nic", registration=2))
    with pytest.raises(RecordingError, match=r"2 resources: use one of vendor.com/gpu, vendor.com"):
        ReplayPlugin(builder.write())
