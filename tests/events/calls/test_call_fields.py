"""Every field of a recorded call, as text and as JSON, and every kind of message."""

from __future__ import annotations

import attrs
import pytest

from devicemanager import ManualClock
from devicemanager.events.calls import Call, CallFilter, CallLog, Direction, Mark, call_data
from devicemanager.events.calls.log import CallRecorder
from devicemanager.events.calls.matching import CallMismatch, CallQueries
from devicemanager.events.calls.rendering import RPCS, device_ids, request_data, response_data
from devicemanager.events.stream import EventKind, EventStream
from protos import deviceplugin_v1beta1 as dp
from protos import dra_v1, drahealth_v1
from protos import pluginregistration_v1 as pr

GPU = "vendor.com/gpu"
CLAIM = dra_v1.Claim(namespace="n", uid="u", name="c")
PREPARED = dra_v1.NodePrepareResourceResponse(
    devices=[
        dra_v1.Device(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["v/c=d"])
    ]
)


def pre_start(*ids: str) -> bytes:
    return dp.PreStartContainerRequest(devices_ids=ids).SerializeToString()


def lists(count: int) -> bytes:
    devices = [dp.Device(ID=str(number)) for number in range(count)]
    return dp.ListAndWatchResponse(devices=devices).SerializeToString()


CALL = Call(
    3, 5.5, GPU, "gpu.sock", Direction.TO_PLUGIN, "PreStartContainer", pre_start("b", "a"), b"",
    "OK", "", 0.25, None, 7, "fault 1, delay-call",
)  # fmt: skip


def test_call_data_has_every_field() -> None:
    assert call_data(CALL) == {
        "number": 3,
        "time": 5.5,
        "resource": GPU,
        "plugin": "gpu.sock",
        "direction": "to-plugin",
        "rpc": "PreStartContainer",
        "stream_message": None,
        "request": {"devices_ids": ["b", "a"]},
        "response": {},
        "code": "OK",
        "message": "",
        "duration": 0.25,
        "after_event": 7,
        "fault": "fault 1, delay-call",
    }
    failed = attrs.evolve(CALL, response_bytes=None, direction=Direction.TO_KUBELET)
    assert call_data(failed)["response"] is None
    assert call_data(failed)["direction"] == "to-kubelet"


def test_call_has_defaults_of_a_success_and_ignores_its_place_in_comparisons() -> None:
    call = Call(1, 0.0, None, "p", Direction.TO_PLUGIN, "Allocate", b"", None)
    assert (call.code, call.message, call.duration) == ("OK", "", 0.0)
    assert (call.stream_message, call.after_event, call.fault) == (None, 0, "")
    assert call == attrs.evolve(call, number=2, after_event=9)
    assert call != attrs.evolve(call, code="Internal")
    assert "bytes" not in repr(call) and "after_event" not in repr(call)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            "call 3: PreStartContainer vendor.com/gpu (gpu.sock) a, b: OK after 0.250 s "
            "[fault 1, delay-call]",
        ),
        (
            {"fault": "", "resource": None, "request_bytes": b""},
            "call 3: PreStartContainer gpu.sock: OK after 0.250 s",
        ),
        (
            {"fault": "", "code": "Internal", "message": "no\n"},
            "call 3: PreStartContainer vendor.com/gpu (gpu.sock) a, b: Internal: no  after 0.250 s",
        ),
        (
            {
                "fault": "",
                "rpc": "ListAndWatch",
                "request_bytes": b"",
                "response_bytes": lists(2),
                "stream_message": 4,
            },
            "call 3: ListAndWatch list 4 vendor.com/gpu (gpu.sock): 2 devices after 0.250 s",
        ),
        (
            {"fault": "", "rpc": "ListAndWatch", "request_bytes": b"", "response_bytes": b""},
            "call 3: ListAndWatch vendor.com/gpu (gpu.sock): OK after 0.250 s",
        ),
        (
            {
                "fault": "",
                "rpc": "ListAndWatch",
                "request_bytes": b"",
                "response_bytes": b"\xff",
                "stream_message": 1,
            },
            "call 3: ListAndWatch list 1 vendor.com/gpu (gpu.sock): 0 devices after 0.250 s",
        ),
    ],
    ids=["pod", "no resource", "failed", "list", "end of stream", "undecodable"],
)
def test_call_is_described_in_one_line(changes: dict[str, object], text: str) -> None:
    assert str(attrs.evolve(CALL, **changes)) == text


def test_description_shows_8_devices_and_at_most_300_characters() -> None:
    ids = [f"d{number}" for number in range(9)]
    assert "d0, d1, d2, d3, d4, d5, d6, d7" in str(
        attrs.evolve(CALL, request_bytes=pre_start(*ids))
    )
    assert "d8" not in str(attrs.evolve(CALL, request_bytes=pre_start(*ids)))
    long = str(attrs.evolve(CALL, code="Internal", message="x" * 1000))
    assert len(long.partition("... (")[0]) == 300


# -- messages ------------------------------------------------------------------------------


CONTAINER = dp.ContainerAllocateRequest(devices_ids=["a", "b"])
PREFERRED = dp.ContainerPreferredAllocationRequest(
    available_deviceIDs=["a", "b"], must_include_deviceIDs=["c"], allocation_size=2
)


@pytest.mark.parametrize(
    ("rpc", "request_", "response", "asked", "answered"),
    [
        (
            "Register",
            dp.RegisterRequest(options=dp.DevicePluginOptions(pre_start_required=True)),
            dp.Empty(),
            {
                "version": "",
                "endpoint": "",
                "resource_name": "",
                "options": {
                    "pre_start_required": True,
                    "get_preferred_allocation_available": False,
                },
            },
            {},
        ),
        (
            "GetDevicePluginOptions",
            dp.Empty(),
            dp.DevicePluginOptions(get_preferred_allocation_available=True),
            {},
            {"pre_start_required": False, "get_preferred_allocation_available": True},
        ),
        ("ListAndWatch", dp.Empty(), dp.ListAndWatchResponse(), {}, {"devices": []}),
        (
            "GetPreferredAllocation",
            dp.PreferredAllocationRequest(container_requests=[PREFERRED]),
            dp.PreferredAllocationResponse(
                container_responses=[dp.ContainerPreferredAllocationResponse(deviceIDs=["b"])]
            ),
            {
                "container_requests": [
                    {
                        "available_deviceIDs": ["a", "b"],
                        "must_include_deviceIDs": ["c"],
                        "allocation_size": 2,
                    }
                ]
            },
            {"container_responses": [{"deviceIDs": ["b"]}]},
        ),
        (
            "Allocate",
            dp.AllocateRequest(container_requests=[CONTAINER]),
            dp.AllocateResponse(),
            {"container_requests": [{"devices_ids": ["a", "b"]}]},
            {"container_responses": []},
        ),
        (
            "PreStartContainer",
            dp.PreStartContainerRequest(devices_ids=["a"]),
            dp.PreStartContainerResponse(),
            {"devices_ids": ["a"]},
            {},
        ),
        (
            "GetInfo",
            pr.InfoRequest(),
            pr.PluginInfo(type="DevicePlugin", name=GPU, supported_versions=["v1beta1"]),
            {},
            {
                "type": "DevicePlugin",
                "name": GPU,
                "endpoint": "",
                "supported_versions": ["v1beta1"],
            },
        ),
        (
            "NotifyRegistrationStatus",
            pr.RegistrationStatus(plugin_registered=True),
            pr.RegistrationStatusResponse(),
            {"plugin_registered": True, "error": ""},
            {},
        ),
        (
            "NodePrepareResources",
            dra_v1.NodePrepareResourcesRequest(claims=[CLAIM]),
            dra_v1.NodePrepareResourcesResponse(claims={"u": PREPARED}),
            {"claims": [{"namespace": "n", "uid": "u", "name": "c"}]},
            {
                "claims": {
                    "u": {
                        "devices": [
                            {
                                "request_names": ["r"],
                                "pool_name": "p",
                                "device_name": "d",
                                "cdi_device_ids": ["v/c=d"],
                            }
                        ],
                        "error": "",
                        "permanent_error": False,
                    }
                }
            },
        ),
        (
            "NodeUnprepareResources",
            dra_v1.NodeUnprepareResourcesRequest(claims=[CLAIM]),
            dra_v1.NodeUnprepareResourcesResponse(
                claims={"u": dra_v1.NodeUnprepareResourceResponse(error="busy")}
            ),
            {"claims": [{"namespace": "n", "uid": "u", "name": "c"}]},
            {"claims": {"u": {"error": "busy"}}},
        ),
        (
            "NodeWatchResources",
            drahealth_v1.NodeWatchResourcesRequest(),
            drahealth_v1.NodeWatchResourcesResponse(
                devices=[
                    drahealth_v1.DeviceHealth(
                        device=drahealth_v1.DeviceIdentifier(pool_name="p", device_name="d"),
                        message="hot",
                    )
                ]
            ),
            {},
            {
                "devices": [
                    {
                        "device": {"pool_name": "p", "device_name": "d"},
                        "health": 0,
                        "last_updated_time": 0,
                        "health_check_timeout_seconds": 0,
                        "message": "hot",
                    }
                ]
            },
        ),
    ],
    ids=RPCS,
)
def test_messages_of_each_method_are_decoded(
    rpc: str, request_, response, asked: dict[str, object], answered: dict[str, object]
) -> None:
    assert request_data(rpc, request_.SerializeToString()) == asked
    assert response_data(rpc, response.SerializeToString()) == answered
    assert request_data(rpc, b"\x0a\xff") == {"undecodable": "Cv8="}


@pytest.mark.parametrize(
    ("rpc", "message", "ids"),
    [
        ("Allocate", dp.AllocateRequest(container_requests=[CONTAINER] * 2), {"a", "b"}),
        (
            "GetPreferredAllocation",
            dp.PreferredAllocationRequest(container_requests=[PREFERRED]),
            {"a", "b"},
        ),
        ("PreStartContainer", dp.PreStartContainerRequest(devices_ids=["c"]), {"c"}),
        ("ListAndWatch", dp.Empty(), set()),
    ],
)
def test_device_ids_are_those_that_the_request_names(rpc: str, message, ids: set[str]) -> None:
    assert device_ids(rpc, message.SerializeToString()) == ids


# -- the log -------------------------------------------------------------------------------


def recorder_of(log: CallLog, resource: str | None = GPU) -> CallRecorder:
    recorder = log.recorder(resource, "gpu.sock")
    assert recorder is not None
    return recorder


@pytest.mark.parametrize("rpc", RPCS)
def test_calls_for_pods_have_a_limit_of_their_own(rpc: str) -> None:
    is_for_pods = rpc in (
        "Allocate",
        "GetPreferredAllocation",
        "PreStartContainer",
        "NodePrepareResources",
        "NodeUnprepareResources",
    )
    log = CallLog(EventStream(), 1, 1000)
    recorder_of(log).begin(rpc).answered(b"")
    recorder_of(log).begin("Register" if is_for_pods else "Allocate").answered(b"")
    assert [call.number for call in log.all()] == [1, 2]
    recorder_of(log).begin("Allocate" if is_for_pods else "Register").answered(b"")
    assert [call.number for call in log.all()] == [2, 3]
    assert log.dropped == 1


def test_bytes_of_request_response_and_message_count_exactly() -> None:
    for size, kept in ((10, 1), (9, 0)):
        log = CallLog(EventStream(), 5, size)
        recorder_of(log).begin("Register", b"abc").failed("Internal", "abcde", b"ab")
        assert (len(log.all()), log.dropped) == (kept, 1 - kept)
    log = CallLog(EventStream(), 5, 0)
    recorder_of(log).begin("Register").failed("Internal", "")
    recorder_of(log).begin("Register").answered(b"")
    assert len(log.all()) == 2


@pytest.mark.parametrize("length", [511, 512, 513])
def test_names_are_cut_after_512_characters(length: int) -> None:
    recorder = CallLog(EventStream(), 1, 1).recorder("r" * length, "p" * length)
    assert recorder is not None
    kept = min(length, 512)
    assert (recorder.resource, recorder.plugin) == ("r" * kept, "p" * kept)
    assert recorder_of(CallLog(EventStream(), 1, 1), None).resource is None


def test_call_has_both_times_direction_and_fault() -> None:
    clock = ManualClock(50.0)
    events = EventStream(clock)
    log = CallLog(events, 10, 1000)
    call = recorder_of(log).begin("Register", b"", Direction.TO_KUBELET)
    assert (call.time, call.received, call.fault, log.now()) == (50.0, 0, "", 50.0)
    clock.advance(2)
    call.fault = "fault 1, x"
    events.publish(EventKind.STARTED, "")
    call.failed("Internal", "why", b"\x0a\x00")
    (ended,) = log.all()
    assert ended == Call(
        1, 50.0, GPU, "gpu.sock", Direction.TO_KUBELET, "Register", b"", b"\x0a\x00", "Internal",
        "why", ended.duration, None, 1, "fault 1, x",
    )  # fmt: skip
    assert (ended.number, ended.after_event) == (1, 1)
    assert 0 <= ended.duration < 10


def test_stream_is_in_progress_until_its_end() -> None:
    log = CallLog(EventStream(), 10, 1000)
    stream = recorder_of(log).begin("ListAndWatch")
    stream.received_message(b"")
    assert log.in_progress == (stream,)
    (listed,) = log.all()
    assert (listed.request_bytes, listed.message, listed.code) == (b"", "", "OK")
    stream.answered(b"")
    assert log.in_progress == ()


def test_failing_subscriber_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = CallLog(EventStream(), 10, 1000)
    log.subscribe(lambda call: 1 / 0)
    recorder_of(log).begin("Register").answered(b"")
    (record,) = caplog.records
    assert record.getMessage() == f"a callback failed on {log.all()[0]}"


def test_unanswered_calls_are_described_without_streams() -> None:
    log = CallLog(EventStream(), 10, 1000)
    recorder_of(log).begin("ListAndWatch")
    named = recorder_of(log).begin("Allocate")
    recorder_of(log, None).begin("GetInfo")
    named.started -= 2
    first, second = log.unanswered()
    assert first.startswith("Allocate vendor.com/gpu, since 2.0") and first.endswith(" s")
    assert second.startswith("GetInfo gpu.sock, since 0.0") and second.endswith(" s")
    named.answered(b"")
    assert len(log.unanswered()) == 1


def test_later_returns_calls_after_a_number_in_order() -> None:
    log = CallLog(EventStream(), 10, 1000)
    for rpc in ("Register", "Allocate", "Allocate", "Register"):
        recorder_of(log).begin(rpc).answered(b"")
    assert [call.number for call in log.later(0)] == [1, 2, 3, 4]
    assert [call.number for call in log.later(2)] == [3, 4]
    assert log.later(4) == []
    assert (log.latest, log.dropped, log.mark()) == (4, 0, Mark(event=0, call=4))


class SlowLog(CallLog):
    """A log with the search of every ``CallQueries``, which reads all calls."""

    _later = CallQueries._later


@pytest.mark.parametrize("since", [0, 1, 2, 4, Mark(event=9, call=3)], ids=str)
def test_search_finds_the_calls_after_a_moment(since: Mark | int) -> None:
    log, slow = CallLog(EventStream(), 10, 1000), SlowLog(EventStream(), 10, 1000)
    number = since.call if isinstance(since, Mark) else since
    for calls in (log, slow):
        for rpc in ("Register", "Allocate", "Allocate", "Register"):
            recorder_of(calls).begin(rpc).answered(b"")
        assert [call.number for call in calls(since=since)] == [1, 2, 3, 4][number:]


# -- mismatches ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criteria", "differences", "distance"),
    [
        ({}, [], (False, False, 0)),
        ({"rpc": "Allocate"}, ["rpc is 'PreStartContainer', not 'Allocate'"], (True, False, 1)),
        ({"resource": "a/b"}, ["resource is 'vendor.com/gpu', not 'a/b'"], (False, True, 1)),
        ({"plugin": "x"}, ["plugin is 'gpu.sock', not 'x'"], (False, False, 1)),
        ({"code": "Internal"}, ["code is 'OK', not 'Internal'"], (False, False, 1)),
        ({"device_ids": ["c", "a"]}, ["device_ids: missing c; unexpected b"], (False, False, 2)),
        ({"device_ids": ["a", "b", "d", "c"]}, ["device_ids: missing c, d"], (False, False, 2)),
        ({"device_ids": []}, ["device_ids: unexpected a, b"], (False, False, 2)),
        (
            {"request": {"devices_ids": ("b",)}},
            ["request.devices_ids has 2 elements, not 1"],
            (False, False, 1),
        ),
        (
            {"request": {"devices_ids": ["b", "x", "y", "z"]}},
            [
                "request.devices_ids has 2 elements, not 4",
                "request.devices_ids[1] is 'a', not 'x'",
            ],
            (False, False, 4),
        ),
        (
            {"response": {"a": {"b": 1, "c": [2, 3]}}},
            ["response has no 'a'"],
            (False, False, 5),
        ),
        (
            {"request": {"devices_ids": {"b": 1}}},
            ["request.devices_ids is ['b', 'a'], not {'b': 1}"],
            (False, False, 2),
        ),
    ],
    ids=str,
)
def test_differences_and_distance_of_each_criterion(
    criteria: dict[str, object], differences: list[str], distance: tuple[bool, bool, int]
) -> None:
    wanted = CallFilter(**criteria)
    assert wanted.differences(CALL) == differences
    assert wanted.distance(CALL) == distance
    assert wanted.matching([CALL]) == ([] if differences else [CALL])


def test_filter_describes_only_its_criteria() -> None:
    wanted = CallFilter(GPU, rpc="Allocate", device_ids=["a"], request={"x": 1})
    assert str(wanted) == (
        "call(resource='vendor.com/gpu', rpc='Allocate', device_ids={'a'}, request={'x': 1})"
    )
    assert str(CallFilter()) == "call()"


@pytest.mark.parametrize("code", [
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound",
    "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted",
    "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
])  # fmt: skip
def test_every_status_code_of_go_can_be_searched(code: str) -> None:
    call = attrs.evolve(CALL, code=code)
    assert CallFilter(code=code).matching([CALL, call]) == [CALL, call][code != "OK" :]


def lines_of(log: CallLog, **criteria: object) -> list[str]:
    with pytest.raises(CallMismatch) as raised:
        log.assert_called(**criteria)
    return str(raised.value).splitlines()


def prefixes(lines: list[str]) -> list[str]:
    """Cut the durations, which differ."""
    return [line.partition(" after ")[0] for line in lines]


def test_mismatch_is_explained_line_by_line() -> None:
    log = CallLog(EventStream(), 100, 10_000)
    for number in range(12):
        recorder_of(log).begin("Allocate").failed("Internal", f"n{number}")
    shown = [f"  call {n}: Allocate {GPU} (gpu.sock): Internal: n{n - 1}" for n in range(3, 13)]
    assert prefixes(lines_of(log, code="OK", rpc="Allocate")) == [
        "wanted one or more of call(rpc='Allocate', code='OK'), found 0 among 12 calls",
        "the closest:",
        shown[-1],
        "    code is 'Internal', not 'OK'",
        "all calls:",
        "  (2 earlier)",
        *shown,
    ]
    assert prefixes(lines_of(log, times=1, since=2)) == [
        "wanted 1 of call(), found 10 among 10 calls",
        "found:",
        *shown,
    ]
    assert lines_of(log, since=12) == ["wanted one or more of call(), found 0 among 0 calls"]


def test_mismatch_says_why_calls_are_missing() -> None:
    off = CallLog(EventStream(), 0, 10)
    assert lines_of(off)[1] == "(no calls are recorded: Settings.calls_kept is 0)"
    log = CallLog(EventStream(), 1, 100)
    for _ in range(3):
        recorder_of(log).begin("Register").answered(b"")
    assert lines_of(log, rpc="Allocate")[1] == "(earlier calls that are no longer stored: 2)"
