"""gRPC status codes in Go's spelling."""

import grpc
import pytest

from devicemanager.core.api.codes import go_name


@pytest.mark.parametrize(
    ("code", "name"),
    [("OK", "OK"), ("CANCELLED", "Canceled"), ("DEADLINE_EXCEEDED", "DeadlineExceeded")],
)
def test_code_is_spelled_as_in_go(code, name):
    assert go_name(code) == name


def test_names_of_codes_are_unique():
    names = {go_name(code.name) for code in grpc.StatusCode}
    assert len(names) == len(grpc.StatusCode)
