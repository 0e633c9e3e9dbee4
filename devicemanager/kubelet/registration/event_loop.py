"""An asyncio event loop on its own thread, for tasks that wait: dialing, backoff, handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from devicemanager.io.clock import Clock
from devicemanager.io.idle_pool import IdlePool

T = TypeVar("T")

_CANCEL_SECONDS = _JOIN_SECONDS = 10.0

Running = tuple[asyncio.AbstractEventLoop, threading.Thread]
"""An event loop, and the thread that runs it."""


def _end(running: Running) -> None:
    loop, thread = running
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_JOIN_SECONDS)


loops: Final[IdlePool[Running]] = IdlePool(1, _end)
"""Pool of idle event loops. It stays empty unless a test session with many kubelets enables it."""


class LoopThread:
    """An asyncio event loop on its own daemon thread, created with the first task; thread-safe.

    Tasks that wait need no further threads, so a thousand plugins that never answer do not delay
    other plugins. Tasks must not block the loop.
    """

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._stopped = False
        # asyncio has only weak references to tasks. A future refers to its task, so a task whose
        # future the caller drops is not garbage collected while it waits.
        self._unfinished: set[Future[Any]] = set()

    def run(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a task and return its future, which ``stop`` cancels.

        Raises OSError or RuntimeError if the loop or its thread cannot be created.
        """
        with self._lock:
            if self._stopped:
                task.close()
                future: Future[T] = Future()
                future.cancel()
                return future
            try:
                # Created with the first task: most kubelets in tests never register a plugin.
                loop, _ = self._running = self._running or loops.take() or _start()
            except BaseException:
                task.close()
                raise
            future = asyncio.run_coroutine_threadsafe(task, loop)
            self._unfinished.add(future)
        # Called without the lock: if the task has already ended, the callback runs here.
        future.add_done_callback(self._unfinished.discard)
        return future

    def stop(self) -> None:
        """Cancel all tasks, and put the loop with its thread into the pool ``loops``. Idempotent.

        If the pool does not take the loop, or a task does not end within 10 seconds, end the
        thread.
        """
        with self._lock:
            self._stopped = True
            running, self._running = self._running, None
        if running is None:
            return
        loop, _ = running
        try:
            # Tasks run their ``finally`` blocks. A task that blocks there must not block the stop.
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(_CANCEL_SECONDS)
        except TimeoutError:
            _end(running)
        else:
            loops.give_back(running)


def _start() -> Running:
    # Not asyncio.new_event_loop, because a program can replace the event loop policy.
    loop = asyncio.SelectorEventLoop()
    thread = threading.Thread(target=_run, args=(loop,), name="registration", daemon=True)
    try:
        thread.start()
    except BaseException:
        loop.close()
        raise
    return loop, thread


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait on the running event loop until the kubelet's clock has advanced by ``seconds``."""
    loop = asyncio.get_running_loop()
    # Not asyncio.sleep, because a test can advance the kubelet's clock.
    over = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
            loop.call_soon_threadsafe(over.set)

    cancel = clock.call_at(clock.monotonic() + seconds, wake)
    try:
        await over.wait()
    finally:
        cancel()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
