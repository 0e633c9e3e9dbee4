"""The call log: what it stores, how it decodes messages, and how it explains mismatches."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from devicemanager import ManualClock, RequestError
from devicemanager.events.calls import (
    Call,
    CallLog,
    CallMismatch,
    Direction,
    Mark,
    call_data,
)
from devicemanager.events.calls.log import CallRecorder
from devicemanager.events.stream import EventKind, EventStream
from protos import deviceplugin_v1beta1 as dp
from protos import pluginregistration_v1 as pr

GPU = "vendor.com/gpu"


def allocate_request(*ids: str) -> bytes:
    container = dp.ContainerAllocateRequest(devices_ids=ids)
    return dp.AllocateRequest(container_requests=[container]).SerializeToString()


def recorder_of(log: CallLog, resource: str = GPU) -> CallRecorder:
    recorder = log.recorder(resource, "gpu.sock")
    assert recorder is not None
    return recorder


def allocate(log: CallLog, *ids: str, resource: str = GPU, response: bytes = b"") -> None:
    recorder_of(log, resource).begin("Allocate", allocate_request(*ids)).answered(response)


def log(keep: int = 100, keep_bytes: int = 1 << 20, clock: ManualClock | None = None) -> CallLog:
    return CallLog(EventStream(clock), keep, keep_bytes)


# Storage.


def test_call_has_direction_rpc_devices_and_time() -> None:
    clock = ManualClock(100.0)
    events = EventStream(clock)
    calls = CallLog(events, 10, 1000)
    events.publish(EventKind.DEVICES_UPDATED, "a list")
    call = recorder_of(calls).begin("Allocate", allocate_request("a", "b"))
    clock.advance(5)
    call.failed("Unavailable", "gone")
    (found,) = calls()
    assert (found.number, found.time, found.resource, found.plugin) == (1, 100.0, GPU, "gpu.sock")
    assert (found.direction, found.rpc) == (Direction.TO_PLUGIN, "Allocate")
    assert (found.code, found.message, found.response) == ("Unavailable", "gone", None)
    assert found.device_ids == {"a", "b"}
    assert found.duration >= 0 and found.after_event == 1
    assert calls.mark() == Mark(event=1, call=1)


def test_stream_has_call_per_list_and_one_for_its_end() -> None:
    clock = ManualClock()
    calls = log(clock=clock)
    stream = recorder_of(calls).begin("ListAndWatch")
    assert calls.in_progress == (stream,)
    listed = dp.ListAndWatchResponse(devices=[dp.Device(ID="a", health="Healthy")])
    clock.advance(2)
    stream.received_message(listed.SerializeToString())
    stream.received_message(b"")
    stream.failed("Canceled", "it left")
    first, second, end = calls()
    assert (first.stream_message, second.stream_message, end.stream_message) == (1, 2, None)
    assert (first.time, end.time) == (2, 0)
    assert first.response == {"devices": [{"ID": "a", "health": "Healthy"}]}
    assert second.response == {"devices": []}
    assert (end.response, end.code) == (None, "Canceled")
    assert calls.in_progress == ()


def test_log_drops_oldest_calls_by_number_and_by_bytes() -> None:
    calls = log(keep=3)
    for number in range(5):
        allocate(calls, f"d{number}")
    assert [call.number for call in calls()] == [3, 4, 5]
    assert (calls.dropped, calls.latest) == (2, 5)

    calls = log(keep_bytes=100)
    for _ in range(3):
        allocate(calls, "d", response=b"x" * 40)
    assert [call.number for call in calls()] == [2, 3]
    # A call above the limit is dropped, together with all earlier calls.
    allocate(calls, "d", response=b"x" * 101)
    assert calls() == [] and calls.dropped == 4
    recorder_of(calls).begin("Allocate").failed("Internal", "x" * 101)
    assert calls() == [] and calls.dropped == 5


def test_flood_of_lists_does_not_drop_allocations() -> None:
    calls = log(keep=3)
    allocate(calls, "a")
    stream = recorder_of(calls).begin("ListAndWatch")
    for _ in range(10):
        stream.received_message(b"")
    # Calls made for pods have a separate limit, because some plugins send lists all the time.
    assert [call.number for call in calls()] == [1, 9, 10, 11]


def test_no_recorder_if_no_calls_are_stored() -> None:
    assert log(keep=0).recorder(GPU, "gpu.sock") is None


def test_long_names_are_cut() -> None:
    calls = log()
    allocate(calls, resource="x" * 5000)
    assert len(calls()[0].resource or "") == 512


def test_exceptions_of_subscribers_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = log()
    seen: list[int] = []

    def fails(call: Call) -> None:
        raise SystemExit("no")

    calls.subscribe(fails)
    end = calls.subscribe(lambda call: seen.append(call.number))
    allocate(calls, "a")
    end()
    allocate(calls, "a")
    assert seen == [1]
    assert "a callback failed" in caplog.text


def test_each_subscription_of_a_callback_ends_separately() -> None:
    calls = log()
    seen: list[int] = []

    def note(call: Call) -> None:
        seen.append(call.number)

    end_one, end_two = calls.subscribe(note), calls.subscribe(note)
    end_one()
    end_one()
    allocate(calls, "a")
    assert seen == [1]
    end_two()
    allocate(calls, "a")
    assert seen == [1]


# Messages as plain data.


@pytest.mark.parametrize(
    ("rpc", "request_", "response", "expected"),
    [
        (
            "Register",
            dp.RegisterRequest(version="v1beta1", endpoint="a.sock"),
            dp.Empty(),
            ({"version": "v1beta1", "endpoint": "a.sock", "resource_name": ""}, {}),
        ),
        (
            "GetPreferredAllocation",
            dp.PreferredAllocationRequest(
                container_requests=[
                    dp.ContainerPreferredAllocationRequest(
                        available_deviceIDs=["a", "b"], allocation_size=1
                    )
                ]
            ),
            dp.PreferredAllocationResponse(),
            (
                {
                    "container_requests": [
                        {
                            "available_deviceIDs": ["a", "b"],
                            "must_include_deviceIDs": [],
                            "allocation_size": 1,
                        }
                    ]
                },
                {"container_responses": []},
            ),
        ),
        (
            "ListAndWatch",
            dp.Empty(),
            dp.ListAndWatchResponse(
                devices=[dp.Device(ID="a", topology=dp.TopologyInfo(nodes=[dp.NUMANode(ID=1)]))]
            ),
            ({}, {"devices": [{"ID": "a", "health": "", "topology": {"nodes": [{"ID": 1}]}}]}),
        ),
        (
            "NotifyRegistrationStatus",
            pr.RegistrationStatus(error="no"),
            pr.RegistrationStatusResponse(),
            ({"plugin_registered": False, "error": "no"}, {}),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_messages_are_decoded_to_plain_data(rpc: str, request_, response, expected) -> None:
    calls = log()
    recorder_of(calls).begin(rpc, request_.SerializeToString()).answered(
        response.SerializeToString()
    )
    (call,) = calls()
    assert (call.request, call.response) == expected
    assert json.loads(json.dumps(call_data(call)))["request"] == expected[0]


def test_decoded_settings_have_sorted_maps_and_set_oneof_members() -> None:
    answer = dp.ContainerAllocateResponse(envs={"B": "2", "A": "1"})
    answer.typed_devices.add().pci.vendor_id = "10de"
    calls = log()
    response = dp.AllocateResponse(container_responses=[answer]).SerializeToString()
    allocate(calls, "a", response=response)
    data = calls()[0].response
    assert data is not None
    (container,) = data["container_responses"]
    assert list(container["envs"]) == ["A", "B"]
    assert container["typed_devices"] == [
        {"pci": {"vendor_id": "10de", "product_id": "", "addresses": []}}
    ]


def test_undecodable_bytes_are_base64() -> None:
    calls = log()
    allocate(calls, "a", response=b"\xff\xff")
    assert calls()[0].response == {"undecodable": "//8="}


# Searches and assertions.


@pytest.fixture(scope="module")
def calls_made() -> CallLog:
    calls = log()
    response = dp.AllocateResponse(
        container_responses=[dp.ContainerAllocateResponse(envs={"A": "1"})]
    )
    allocate(calls, "a", "b", response=response.SerializeToString())
    allocate(calls, "a", resource="vendor.com/nic")
    recorder_of(calls).begin("PreStartContainer").failed("Internal", "broken")
    return calls


@pytest.mark.parametrize(
    ("criteria", "numbers"),
    [
        ({}, [1, 2, 3]),
        ({"resource": GPU}, [1, 3]),
        ({"rpc": "Allocate"}, [1, 2]),
        ({"plugin": "other.sock"}, []),
        ({"device_ids": ["b", "a"]}, [1]),
        ({"code": "Internal"}, [3]),
        ({"code": "OK", "since": 1}, [2]),
        ({"since": Mark(event=7, call=2)}, [3]),
        ({"request": {"container_requests": [{"devices_ids": ["a"]}]}}, [2]),
        ({"response": {"container_responses": [{"envs": {"A": "1"}}]}}, [1]),
        ({"rpc": "Allocate", "response": {"container_responses": []}}, [2]),
    ],
    ids=str,
)
def test_search_by_criteria(calls_made: CallLog, criteria, numbers: list[int]) -> None:
    assert [call.number for call in calls_made(**criteria)] == numbers


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (lambda calls: calls(rpc="allocate"), "unknown RPC 'allocate': use one of Register"),
        (lambda calls: calls(code="CANCELLED"), "unknown status code 'CANCELLED': use one of OK"),
        (lambda calls: calls(device_ids="gpu-0"), "a set of ids, such as {'gpu-0'}"),
    ],
)
def test_invalid_criteria_are_errors(
    calls_made: CallLog, search: Callable[[CallLog], object], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        search(calls_made)


def test_assert_called_returns_calls(calls_made: CallLog) -> None:
    assert [call.number for call in calls_made.assert_called(GPU, rpc="Allocate")] == [1]
    calls_made.assert_called(rpc="Allocate", times=2)
    calls_made.assert_not_called(rpc="Allocate", since=2)


@pytest.mark.parametrize(
    ("criteria", "words"),
    [
        (
            {"resource": GPU, "rpc": "Allocate", "device_ids": {"a", "c"}},
            [
                "wanted one or more of call(resource='vendor.com/gpu', rpc='Allocate'",
                "the closest:\n  call 1: Allocate vendor.com/gpu (gpu.sock) a, b: OK after",
                "    device_ids: missing c; unexpected b",
            ],
        ),
        (
            {"rpc": "PreStartContainer", "code": "OK"},
            [
                "  call 3: PreStartContainer vendor.com/gpu (gpu.sock): Internal: broken after",
                "    code is 'Internal', not 'OK'",
                "all calls:\n  call 1: Allocate",
            ],
        ),
        (
            {"response": {"container_responses": [{"envs": {"A": "2", "B": ""}}]}},
            [
                "response.container_responses[0].envs.A is '1', not '2'",
                "response.container_responses[0].envs has no 'B'",
            ],
        ),
        ({"rpc": "Allocate", "times": 1}, ["wanted 1 of call(rpc='Allocate'), found 2", "found:"]),
        ({"since": 3}, ["found 0 among 0 calls"]),
    ],
    ids=["device ids", "code", "response", "times", "nothing"],
)
def test_mismatch_shows_closest_call(calls_made: CallLog, criteria, words: list[str]) -> None:
    with pytest.raises(CallMismatch) as caught:
        calls_made.assert_called(**criteria)
    for each in words:
        assert each in str(caught.value)


def test_assert_not_called_shows_calls(calls_made: CallLog) -> None:
    with pytest.raises(AssertionError, match=r"^wanted 0 of .*found 2 among 3"):
        calls_made.assert_not_called(rpc="Allocate")


def test_mismatch_names_number_of_dropped_calls() -> None:
    calls = log(keep=1)
    allocate(calls, "a")
    allocate(calls, "b")
    with pytest.raises(CallMismatch, match=r"\(earlier calls that are no longer stored: 1\)"):
        calls.assert_called(device_ids={"a"})
