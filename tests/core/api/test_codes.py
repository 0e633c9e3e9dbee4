"""Status codes have the names that Go gives them."""

import grpc
import pytest

from devicemanager.core.api.codes import go_name


@pytest.mark.parametrize(
    ("code", "name"),
    [("OK", "OK"), ("CANCELLED", "Canceled"), ("DEADLINE_EXCEEDED", "DeadlineExceeded")],
)
def test_a_name_is_as_go_prints_it(code, name):
    assert go_name(code) == name


def test_every_code_has_a_name_of_its_own():
    names = {go_name(code.name) for code in grpc.StatusCode}
    assert len(names) == len(grpc.StatusCode)
