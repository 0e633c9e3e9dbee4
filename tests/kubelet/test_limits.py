"""Errors of the system, as one line."""

import pytest

from devicemanager import StartError
from devicemanager.kubelet.limits import as_start_error, reason


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "out of memory"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (OSError(24, "Too many open files", "/a/b"), "/a/b: Too many open files"),
        (OSError("something else"), "something else"),
        (RuntimeError("broken"), "broken"),
        (RuntimeError(), "RuntimeError()"),
        (
            RuntimeError("can't start new thread"),
            "can't start new thread: out of memory (ulimit -v) or of threads (ulimit -u)",
        ),
        (ValueError("no new thread"), "no new thread"),
    ],
)
def test_reason_is_one_line(error, line):
    assert reason(error) == line


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "no"), RuntimeError("no")])
def test_system_error_becomes_a_start_error(error):
    with pytest.raises(StartError) as caught, as_start_error():
        raise error
    assert str(caught.value) == f"the kubelet cannot start: {reason(error)}"
    assert caught.value.__cause__ is error


def test_other_errors_are_not_changed():
    with pytest.raises(KeyError), as_start_error():
        raise KeyError("x")
