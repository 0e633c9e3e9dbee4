"""What all shapes of the control API have in common, and the errors of the API."""

from __future__ import annotations

import inspect
from http import HTTPStatus

import msgspec
import pytest

from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.control import shapes
from devicemanager.control.errors import (
    ControlError,
    HttpError,
    error_of,
    problem_of,
)
from devicemanager.control.nodes import shapes as node_shapes
from devicemanager.control.nodes.operations import TABLE as NODES
from devicemanager.control.operations import TABLE
from devicemanager.core.errors import (
    AllocationError,
    DeviceManagerError,
    InjectedError,
    RequestError,
    RpcError,
    StartError,
    StopError,
)
from devicemanager.faults.fault import FaultError
from devicemanager.kubelet.waits import WaitTimeout
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.objects.manifests.errors import ManifestError

SHAPES = [
    shape
    for module in (shapes, node_shapes)
    for shape in vars(module).values()
    if isinstance(shape, msgspec.StructMeta) and shape.__module__ == module.__name__
]
BODIES = {each.body for table in (TABLE, NODES) for each in table if each.body in SHAPES}


def test_shapes_are_immutable_with_named_fields() -> None:
    assert len(SHAPES) > 50
    for shape in SHAPES:
        assert shape.__struct_config__.frozen, shape
        kinds = {each.kind for each in inspect.signature(shape).parameters.values()}
        assert kinds <= {inspect.Parameter.KEYWORD_ONLY}, shape


def test_only_requests_reject_unknown_fields() -> None:
    strict = {shape for shape in SHAPES if shape.__struct_config__.forbid_unknown_fields}
    assert len(BODIES) > 15
    assert strict == BODIES | {node_shapes.Device, node_shapes.Resource} - {None}


def test_responses_name_their_schema() -> None:
    tags = [shape.__struct_config__ for shape in SHAPES if shape.__struct_config__.tag]
    assert {config.tag_field for config in tags} == {"schema"}
    assert len({config.tag for config in tags}) == len(tags)
    assert shapes.Node.__struct_config__.tag == "devicemanager.node/v1"


PROBLEMS: list[tuple[Exception, int, str]] = [
    (WaitTimeout("w"), 504, "wait-timeout"),
    (ManifestError("m"), 422, "invalid-manifest"),
    (FaultError("f"), 422, "invalid-fault"),
    (ClaimsError("c"), 409, "claims-conflict"),
    (AllocationError("a"), 409, "allocation-failed"),
    (RequestError("r"), 409, "conflict"),
    (WireError("w"), 502, "unreadable-answer"),
    (StartError("s"), 503, "cannot-start"),
    (StopError("s"), 500, "cannot-stop"),
]


@pytest.mark.parametrize(("error", "status", "reason"), PROBLEMS)
def test_error_returns_to_the_client(error: Exception, status: int, reason: str) -> None:
    problem = problem_of(error)
    assert problem == shapes.Problem(
        title=HTTPStatus(status).phrase, status=status, reason=reason, detail=str(error)
    )
    again = error_of(problem)
    assert (type(again), str(again)) == (type(error), str(error))


def test_invalid_object_has_its_lines() -> None:
    problem = problem_of(InvalidObject(("one", "two")))
    assert (problem.status, problem.reason, problem.detail) == (422, "invalid-object", "one; two")
    assert problem.problems == ["one", "two"]
    again = error_of(problem)
    assert isinstance(again, InvalidObject)
    assert again.lines == ("one", "two")


def test_report_of_a_wait_is_separate_from_its_first_line() -> None:
    problem = problem_of(WaitTimeout("waited 1 s\nevent 1\nevent 2"))
    assert (problem.detail, problem.report) == ("waited 1 s", "waited 1 s\nevent 1\nevent 2")
    assert str(error_of(problem)) == "waited 1 s\nevent 1\nevent 2"


@pytest.mark.parametrize(
    "error", [RpcError("NotFound", "a\nb"), InjectedError("NotFound", "a\nb", "f")]
)
def test_status_of_a_plugin_is_kept(error: RpcError) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.reason, problem.title) == (502, "plugin-error", "Bad Gateway")
    assert problem.detail == "rpc error: code = NotFound desc = a b"
    assert problem.rpc_status == shapes.RpcStatus(code="NotFound", message="a\nb")
    again = error_of(problem)
    assert isinstance(again, RpcError)
    assert (again.code, again.description) == ("NotFound", "a\nb")


def test_other_errors_are_failures_of_the_server() -> None:
    problem = problem_of(DeviceManagerError("a\nb"))
    assert (problem.status, problem.reason, problem.detail) == (500, "failed", "a b")
    problem = problem_of(KeyError("x"))
    text = "unexpected KeyError: 'x' (a bug)"
    assert (problem.status, problem.reason, problem.detail) == (500, "internal", text)
    again = error_of(problem)
    assert (type(again), str(again)) == (ControlError, text)


def test_missing_object_is_not_found() -> None:
    problem = problem_of(RequestError("no pod"), missing=True)
    assert (problem.status, problem.reason, problem.detail) == (404, "not-found", "no pod")
    assert type(error_of(problem)) is RequestError
    assert problem_of(AllocationError("a"), missing=True).status == 409
    problem = problem_of(HttpError(HTTPStatus.NOT_FOUND, "not-found", "no path"))
    assert (problem.status, problem.reason, problem.detail) == (404, "not-found", "no path")
