"""A plugin that answers from a recording: what it says, when, and what it cannot know."""

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


class Script:
    """Writes a recording by hand."""

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
        """``lists``: pairs of seconds and bytes."""
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
        """An Allocate of a container; ``envs`` are names of variables in the answer."""
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
def script(tmp_path):
    return Script(tmp_path / "r.ndjson")


@pytest.fixture
def replay(kubelet):
    """Serve a recording to ``kubelet`` until the end of the test."""
    plugins = []

    def start(recording, **options):
        plugins.append(ReplayPlugin(recording, kubelet.directory, **options).start())
        return plugins[-1]

    yield start
    for plugin in plugins:
        plugin.stop()


def envs(response):
    return [sorted(each.envs) for each in response.container_responses]


def test_what_was_recorded_is_said_again(directory, plugin_dir, mock_kubelet, make_mock_kubelet):
    path = directory / "r.ndjson"
    settings = SimulationSettings(
        resource_name=GPU,
        number_devices=3,
        plugin_name="gpu",
        env_prefix="GPU",
        pre_start=True,
        preferred_policy="reverse",
    )

    def story(kubelet):
        admissions = [kubelet.admit(pod_manifest(name, {GPU: 1}, uid=name)) for name in "ab"]
        options = [each.containers["main"].run_options for each in admissions]
        health = kubelet.allocated_resources_status("a")["main"]
        return options, kubelet.devices("a"), kubelet.devices("b"), health

    with (
        Recorder(path, mock_kubelet.plugin_dir, plugin_dir) as recorder,
        SimulatedPlugin(settings, plugin_dir),
    ):
        mock_kubelet.wait_for_resource(GPU, 3)
        recorded = story(mock_kubelet)
        recorder.stop()
    second = make_mock_kubelet()
    with ReplayPlugin(path, second.plugin_dir) as plugin:
        second.wait_for_resource(GPU, 3)
        assert story(second) == recorded
        plugin.check()
        rejected = second.admit(pod_manifest("c", {GPU: 1}))
    asked = "GetPreferredAllocation of 1 of simple-device"
    assert (
        f"{asked}-{settings.node_name}-0 was not recorded; nearest is {asked}" in rejected.message
    )


def test_answers_come_in_turn_and_the_last_one_stays(kubelet, script, replay):
    script.register().stream((0, devices("a", "b")))
    script.allocate(["a", "b"], "FIRST").allocate(["b", "a"], "SECOND")
    script.allocate(["a"], code="NotFound", message="no a ✗")
    replay(script.write())
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


def test_a_call_that_was_never_answered_is_not(kubelet, script, replay):
    script.register().stream((0, devices("a")))
    script.allocate(["a"], code="DeadlineExceeded", ended_by=EndedBy.KUBELET)
    replay(script.write())
    request = dp.AllocateRequest()
    request.container_requests.add(devices_ids=["a"])
    with pytest.raises(grpc.RpcError) as caught:
        kubelet.plugin().stub.Allocate(request, timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_what_was_not_recorded_fails_and_is_listed(kubelet, script, replay):
    preferred = dp.PreferredAllocationRequest()
    preferred.container_requests.add(available_deviceIDs=["a", "b"], allocation_size=1)
    script.register().stream((0, devices("a", "b", "c")))
    script.allocate(["a", "b"]).allocate(["c"])
    script.call("GetPreferredAllocation", preferred, dp.PreferredAllocationResponse())
    seen = []
    replayed = replay(script.write(), on_miss=seen.append)
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
        "Allocate of a, c was not recorded; nearest is Allocate of c",
        "GetPreferredAllocation of 2 of a, b with a was not recorded; nearest is "
        "GetPreferredAllocation of 1 of a, b",
        "PreStartContainer of a was not recorded; no PreStartContainer was",
    ]
    assert [str(miss) for miss in replayed.misses] == lines
    assert seen == list(replayed.misses)
    assert seen[0].nearest == {"container_requests": [{"devices_ids": ["c"]}]}
    assert seen[2].nearest is None and seen[2].request == {"devices_ids": ["a"]}
    with pytest.raises(NotRecorded, match=r"^vendor.com/gpu: Allocate of a, c was not recorded"):
        replayed.check()


def test_lists_come_as_they_came(kubelet, script, replay):
    lists = [devices("a"), devices("a", "b"), devices("a", health="Unhealthy")]
    script.register(pre_start_required=True).stream(*((n, each) for n, each in enumerate(lists)))
    replay(script.write())
    kubelet.wait_devices({"a": "Unhealthy"})
    assert [each.SerializeToString() for each in kubelet.plugin().lists] == lists
    assert kubelet.plugin().options.pre_start_required  # as in Register: nobody asked for it


def test_a_plugin_that_crashed_and_came_back_does_so(kubelet, script, replay):
    gone = {"code": "Unavailable", "ended_by": EndedBy.PLUGIN}
    script.register(at=1.0).stream((0, devices("a")), **gone)
    script.register(at=20.0).stream((0, devices("b")))
    script.register(at=40.0).stream((0, devices("c")), **gone)
    replay(script.write())
    # The second stream was ended by the kubelet, for no reason but the third registration.
    kubelet.wait_devices({"c": "Healthy"})
    assert [each.lists[0].devices[0].ID for each in kubelet.connections] == ["a", "b", "c"]
    # Nothing follows: it stays, and comes back to a kubelet that restarts with its last list.
    kubelet.restart()
    kubelet.wait_devices({"c": "Healthy"})


def test_a_registration_with_the_next_kubelet_waits_for_it(kubelet, script, replay):
    script.register().stream((0, devices("a")))
    script.register(kubelet=2, at=20.0).stream((0, devices("b")))
    replay(script.write())
    kubelet.wait_devices({"a": "Healthy"})
    kubelet.restart()
    kubelet.wait_devices({"b": "Healthy"})


def test_time_passes_at_the_speed_that_is_asked_for(kubelet, script, replay, monkeypatch):
    from devicemanager.plugin.lists import DeviceList

    waited, pause = [], DeviceList.pause

    def wait(self, seconds, ended):
        waited.append(seconds)
        pause(self, min(seconds, 0.01), ended)

    monkeypatch.setattr(DeviceList, "pause", wait)
    script.register().stream((0.5, devices("a")), (60.5, devices("b")), lasted=100.0)
    replay(script.write(), speed=4)
    kubelet.wait_devices({"b": "Healthy"})
    assert waited == [0.125, 15.0]


def test_a_plugin_that_was_rejected_is_served_all_the_same(kubelet, script, replay):
    script.register(code="Unknown").write()
    replay(script.path)
    kubelet.wait(lambda stub: stub.requests)


BROKEN = {
    "nothing": ("", "there is no schema in its first line"),
    "another file": ('{"a": 1}\n', "there is no schema in its first line"),
    "a later version": (
        '{"schema": "devicemanager.recording/v2"}\n',
        "schema is 'devicemanager",
    ),
    "no JSON": ("{\n", r"r\.ndjson:1: not JSON: "),
    "no object": ("[]\n", r"r\.ndjson:1: not a JSON object$"),
}


@pytest.mark.parametrize(("text", "error"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_recording_is_rejected(tmp_path, text, error):
    (tmp_path / "r.ndjson").write_text(text)
    with pytest.raises(RecordingError, match=error):
        Recording.load(tmp_path / "r.ndjson")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"number": None}, ":2: not a recorded call: number is None$"),
        ({"request_bytes": "?"}, ":2: not a recorded call: Only base64 data is allowed$"),
        ({"ended_by": "nobody"}, ":2: not a recorded call: 'nobody' is not a valid EndedBy$"),
    ],
)
def test_a_line_that_is_no_call_is_named(script, change, error):
    line = json.loads(line_of(script.register().calls[0]))
    script.path.write_text(f"{json.dumps({'schema': SCHEMA})}\n{json.dumps(line | change)}\n")
    with pytest.raises(RecordingError, match=error):
        Recording.load(script.path)


def test_a_recording_may_end_in_the_middle_of_a_line_and_know_more_than_we_do(script):
    whole = script.register().stream((0, devices("a"))).write()
    assert not whole.is_truncated
    lines = [
        json.dumps(json.loads(each) | {"later": 1}) for each in script.path.read_text().splitlines()
    ]
    script.path.write_text("\n".join(lines) + '\n{"numb')
    cut = Recording.load(script.path)
    assert cut.is_truncated
    assert cut == attrs.evolve(whole, is_truncated=True)


def test_what_cannot_be_replayed_is_rejected(tmp_path, script):
    recording = script.register().write()
    for options, error in [
        ({"resource": "vendor.com/nic"}, r"has no vendor.com/nic; it has vendor.com/gpu$"),
        ({"speed": 0}, "^speed is a number above 0, not 0$"),
    ]:
        with pytest.raises(RecordingError, match=error):
            ReplayPlugin(recording, tmp_path, **options)
    with pytest.raises(RecordingError, match=r"^cannot read .*: No such file or directory$"):
        ReplayPlugin(tmp_path / "none")
    empty = Script(tmp_path / "empty").write()
    with pytest.raises(RecordingError, match=r"no plugin has registered in this recording$"):
        ReplayPlugin(empty)
    script.calls.append(attrs.evolve(script.calls[0], resource="vendor.com/nic", registration=2))
    with pytest.raises(
        RecordingError, match=r"2 resources, choose one: vendor.com/gpu, vendor.com"
    ):
        ReplayPlugin(script.write())
