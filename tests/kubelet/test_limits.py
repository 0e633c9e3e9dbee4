"""Errors of the system, as one line."""

import resource
from pathlib import Path

import pytest

from devicemanager import StartError
from devicemanager.core.versions.table import HealthCheck
from devicemanager.kubelet import limits
from devicemanager.kubelet.limits import as_start_error, check_address_space, reason
from devicemanager.kubelet.telemetry import registration_failure


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


NEEDED = 104 << 20
USED = 50


@pytest.fixture
def set_limit(monkeypatch):
    """Function that sets the free address space of this process, which uses 50 pages."""

    def set_(free):
        page = resource.getpagesize()
        limit = resource.RLIM_INFINITY if free is None else USED * page + free
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, resource.RLIM_INFINITY))
        monkeypatch.setattr(Path, "read_text", lambda path: f"{USED} 7 7 7")
        check_address_space.cache_clear()

    yield set_
    check_address_space.cache_clear()


@pytest.mark.parametrize("free", [None, NEEDED, NEEDED + 1])
def test_enough_address_space_is_free(set_limit, free):
    set_limit(free)
    check_address_space()


@pytest.mark.parametrize(("free", "shown"), [(NEEDED - 1, 103), (7 << 20, 7), (0, 0), (-4096, 0)])
def test_start_needs_address_space(set_limit, free, shown):
    set_limit(free)
    with pytest.raises(StartError) as caught:
        check_address_space()
    assert str(caught.value) == (
        "the kubelet cannot start: out of memory: its threads need 104 MiB of address space, but "
        f"only {shown} MiB are free: raise the limit (ulimit -v)"
    )


def test_descriptors_of_the_check_are_closed(monkeypatch):
    opened, closed = [], []
    close = limits.os.close
    dup = limits.os.dup

    def count(descriptor):
        if len(opened) == 20:
            raise OSError(24, "Too many open files")
        opened.append(dup(descriptor))
        return opened[-1]

    monkeypatch.setattr(limits.os, "dup", count)
    monkeypatch.setattr(limits.os, "close", lambda each: (closed.append(each), close(each)))
    with pytest.raises(StartError) as caught:
        limits.check_descriptors()
    assert str(caught.value) == (
        "the kubelet cannot start: Too many open files: free file descriptors: 21, needed: 32: "
        "raise the limit (ulimit -n)"
    )
    assert set(opened) < set(closed) and len(closed) == 21


FAILED = "device plugin registration gRPC server failed and no device plugins can register"


@pytest.mark.parametrize(
    ("check", "has_started", "error", "text"),
    [
        (HealthCheck.NONE, False, OSError("no"), ""),
        (HealthCheck.STRICT, True, None, ""),
        (HealthCheck.STRICT, False, None, FAILED),
        (HealthCheck.STRICT, True, OSError("no"), FAILED),
        (HealthCheck.LENIENT, True, None, ""),
        (HealthCheck.LENIENT, False, None, ""),
        (
            HealthCheck.LENIENT,
            True,
            OSError("no"),
            f"device plugin registration error: {FAILED}: no",
        ),
    ],
)
def test_health_check_of_the_registration_server(check, has_started, error, text):
    assert registration_failure(check, has_started=has_started, error=error) == text
