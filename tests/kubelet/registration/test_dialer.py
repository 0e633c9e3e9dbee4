"""The result of one attempt to reach a plugin's socket, and when none is made."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from devicemanager.core.errors import EndpointError
from devicemanager.kubelet.registration.dialer import Attempt, Dialer, leaves_enough
from tests.hostile import hostile

SETTINGS_FRAME = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
PING_FRAME = bytes((0, 0, 8, 6, 0, 0, 0, 0, 0))


@pytest.fixture
def path(directory: Path) -> Path:
    return directory / "p.sock"


@pytest.mark.parametrize(
    ("limit", "most"), [(1024, 1024 - 64 - 1), (257, 257 - 64 - 1), (16, 16 - 4 - 1)]
)
def test_some_descriptors_stay_free(limit: int, most: int) -> None:
    assert leaves_enough(most, limit)
    assert not leaves_enough(most + 1, limit)


@pytest.mark.parametrize(
    ("answer", "served", "found"),
    [
        (SETTINGS_FRAME, True, "it does not speak HTTP/2"),
        (PING_FRAME, False, "it does not speak HTTP/2"),
        (SETTINGS_FRAME[:-1], False, "it accepts connections but does not respond"),
        (b"", False, "it accepts connections but does not respond"),
    ],
)
def test_first_frame_shows_whether_grpc_is_served(
    path: Path, answer: bytes, served: bool, found: str
) -> None:
    attempt = Attempt(path)
    with hostile.raw_socket(path, answer):
        assert asyncio.run(attempt.run()) is served
    assert attempt.problem == f"{path}: {found}"
    # Only silent sockets queue apart from new ones.
    assert attempt.was_silent is ("does not respond" in found)


def test_no_descriptor_for_a_socket(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rejected(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    attempt = Attempt(path)

    async def attempted() -> bool:
        with monkeypatch.context() as patched:  # not while the loop creates its own
            patched.setattr(socket, "socket", rejected)
            return await attempt.run()

    assert asyncio.run(attempted()) is False
    assert attempt.problem == f"{path}: Too many open files"


def test_refused_connection(path: Path) -> None:
    attempt = Attempt(path)
    assert not asyncio.run(attempt.run())
    assert attempt.problem == f"{path}: No such file or directory"
    path.touch()
    assert not asyncio.run(attempt.run())
    assert attempt.problem == f"{path}: it is not a socket"
    assert not attempt.was_silent


def test_waits_between_attempts_double_up_to_a_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 10:
            raise TimeoutError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(EndpointError, match="No such file or directory"):
        asyncio.run(Dialer().dial(path, 60.0))
    assert waits == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


@pytest.mark.parametrize(("silent", "occupied"), [(True, "_first"), (False, "_later")])
def test_silent_sockets_and_others_do_not_wait_for_each_other(silent: bool, occupied: str) -> None:
    async def attempted() -> bool:
        return True

    async def dialed() -> int:
        dialer = Dialer()
        setattr(dialer, occupied, asyncio.Semaphore(0))
        attempt = SimpleNamespace(was_silent=silent, run=attempted, pid=7)
        return await asyncio.wait_for(dialer._repeat(attempt), 10)  # type: ignore[arg-type]

    assert asyncio.run(dialed()) == 7
