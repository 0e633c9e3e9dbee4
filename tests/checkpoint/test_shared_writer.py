"""Durable writes, shared by concurrent callers."""

from __future__ import annotations

import itertools
import threading

import pytest

from checkpoint import CheckpointWriteError
from checkpoint.shared_writer import MemoryStore, Writer

PATIENCE = 20.0
"""Timeout of waits in seconds; none takes that long unless a test fails."""


class Gate:
    """A store whose writes end when the test allows it."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.written: list[bytes] = []
        self.errors: dict[int, BaseException] = {}
        """Number of the write to its error."""
        self._changed = threading.Condition()
        self._let_go = 0

    def write(self, data: bytes) -> None:
        with self._changed:
            number = len(self.begun)
            self.begun.append(data)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._let_go > number, PATIENCE)
        if number in self.errors:
            raise self.errors[number]
        self.written.append(data)

    def wait_begun(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= count, PATIENCE)

    def let_go(self) -> None:
        """Let one more write end."""
        with self._changed:
            self._let_go += 1
            self._changed.notify_all()


class Turn:
    """A lock that reports which threads wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came: dict[str, threading.Event] = {}

    def came(self, name: str) -> threading.Event:
        return self._came.setdefault(name, threading.Event())

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.came(threading.current_thread().name).set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Clients:
    """Threads that make a change, flush it, and record the outcome."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        # Replaces the writer's lock, so that a test knows which threads wait for it.
        self.turn = writer._turn = Turn()
        self.changes: list[str] = []
        self.outcomes: dict[str, BaseException | None] = {}
        self._threads: list[threading.Thread] = []

    def flush(self, name: str) -> threading.Thread:
        self.changes.append(name)
        thread = threading.Thread(target=self._run, name=name, args=(name,))
        thread.start()
        self._threads.append(thread)
        return thread

    def flush_and_wait(self, *names: str) -> list[threading.Thread]:
        """Start the threads and return when each of them waits for the lock."""
        threads = [self.flush(name) for name in names]
        for name in names:
            assert self.turn.came(name).wait(PATIENCE)
        return threads

    def _run(self, name: str) -> None:
        try:
            self.writer.flush()
        except BaseException as error:
            self.outcomes[name] = error
        else:
            self.outcomes[name] = None

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def clients(gate):
    made: list[Clients] = []
    writer = Writer(gate, lambda: " ".join(made[0].changes).encode())
    made.append(Clients(writer))
    yield made[0]
    made[0].join()


def test_one_flush_is_one_write():
    store = MemoryStore()
    texts = iter([b"one", b"two"])
    writer = Writer(store, lambda: next(texts))
    writer.flush()
    assert (store.data, store.writes) == (b"one", 1)
    writer.flush()
    assert (store.data, store.writes) == (b"two", 2)


def test_later_callers_share_the_next_write(gate, clients):
    # No caller returns before the end of a write that began after its change.
    first = clients.flush("a")
    gate.wait_begun(1)
    clients.flush_and_wait("b", "c", "d")
    assert gate.begun == [b"a"] and clients.outcomes == {}
    gate.let_go()
    first.join(PATIENCE)
    gate.wait_begun(2)
    assert clients.outcomes == {"a": None}
    assert gate.begun == [b"a", b"a b c d"]
    gate.let_go()
    clients.join()
    assert clients.outcomes == dict.fromkeys("abcd")
    assert gate.written == [b"a", b"a b c d"]


def test_failed_write_fails_only_callers_that_shared_it(gate, clients):
    gate.errors[1] = CheckpointWriteError("the file", "no space left on device")
    clients.flush("a")
    gate.wait_begun(1)
    clients.flush_and_wait("b", "c")
    gate.let_go()
    gate.wait_begun(2)
    clients.flush_and_wait("d")
    gate.let_go()
    gate.wait_begun(3)
    gate.let_go()
    clients.join()
    assert {name: error is gate.errors[1] for name, error in clients.outcomes.items()} == {
        "a": False, "b": True, "c": True, "d": False,
    }  # fmt: skip
    assert clients.outcomes["a"] is clients.outcomes["d"] is None


@pytest.mark.parametrize("bug", [ZeroDivisionError, KeyboardInterrupt])
def test_exception_in_the_store_leaves_the_write_to_the_next_caller(gate, clients, bug):
    # The next caller of the same round writes for all.
    gate.errors[1] = bug()
    clients.flush("a")
    gate.wait_begun(1)
    clients.flush_and_wait("b", "c")
    gate.let_go()
    gate.wait_begun(2)
    gate.let_go()
    gate.wait_begun(3)
    gate.let_go()
    clients.join()
    assert clients.outcomes["a"] is None
    assert {type(clients.outcomes[name]) for name in "bc"} == {bug, type(None)}
    assert gate.written == [b"a", b"a b c"]


def test_exception_in_rendering_leaves_the_writer_usable():
    store = MemoryStore()
    texts = iter([ZeroDivisionError(), b"fine"])

    def render() -> bytes:
        found = next(texts)
        if isinstance(found, Exception):
            raise found
        return found

    writer = Writer(store, render)
    with pytest.raises(ZeroDivisionError):
        writer.flush()
    writer.flush()
    assert store.data == b"fine"


def test_close_waits_for_the_write_in_progress(gate, clients):
    writer = clients.writer
    clients.flush("a")
    gate.wait_begun(1)
    clients.flush_and_wait("b")
    closing = threading.Thread(target=writer.close, name="closing")
    closing.start()
    assert clients.turn.came("closing").wait(PATIENCE)
    gate.let_go()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    clients.join()
    # The write in progress succeeds; callers that waited for the next one get an error.
    assert clients.outcomes["a"] is None
    assert isinstance(clients.outcomes["b"], CheckpointWriteError)
    assert gate.written == [b"a"]
    with pytest.raises(
        CheckpointWriteError,
        match=r"^kubelet_internal_checkpoint: cannot be written: the kubelet is stopping; ",
    ):
        writer.flush()
    assert gate.begun == [b"a"]


def test_concurrent_changes_are_all_written():
    # After flush returns, the store has the change, for any number of callers.
    store = MemoryStore()
    changes: list[int] = []
    writer = Writer(store, lambda: b" ".join(b"%d" % change for change in changes))
    numbers = itertools.count()
    together = threading.Barrier(8)
    missing: list[int] = []

    def work() -> None:
        together.wait()
        for _ in range(50):
            mine = next(numbers)
            changes.append(mine)
            writer.flush()
            if b"%d" % mine not in store.data.split():
                missing.append(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert missing == []
    assert len(changes) == 400 and store.writes <= 400


def test_written_is_called_without_the_lock():
    # The callback can call flush, because no lock is held.
    calls = []

    def written():
        calls.append(store.writes)
        if len(calls) < 3:
            writer.flush()

    store = MemoryStore()
    writer = Writer(store, lambda: b"", written)
    writer.flush()
    assert calls == [1, 2, 3]


def test_written_is_not_called_after_a_failure():
    class Full:
        def write(self, data):
            raise CheckpointWriteError("file", "no space")

    calls = []
    writer = Writer(Full(), lambda: b"", lambda: calls.append(True))
    with pytest.raises(CheckpointWriteError):
        writer.flush()
    assert not calls
