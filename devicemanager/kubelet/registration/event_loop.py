"""One thread for everything that waits: dialing, back-off, handshakes."""

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
"""A loop, and the thread that it runs on."""


def _end(running: Running) -> None:
    loop, thread = running
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_JOIN_SECONDS)


loops: Final[IdlePool[Running]] = IdlePool(1, _end)
"""Loops without any task. Who stops one kubelet after the other may keep one for the next."""


class LoopThread:
    """An asyncio event loop on a daemon thread of its own, made with the first task.

    What waits here costs no thread, so a thousand plugins that never answer keep nobody
    waiting. Nothing that blocks may run on it.
    """

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._stopped = False

    def run(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a task; its future is cancelled by ``stop``.

        Raises OSError or RuntimeError if no loop or thread can be made.
        """
        with self._lock:
            if self._stopped:
                task.close()
                future: Future[T] = Future()
                future.cancel()
                return future
            try:
                loop, _ = self._running = self._running or loops.take() or _start()
            except BaseException:
                task.close()
                raise
            return asyncio.run_coroutine_threadsafe(task, loop)

    def stop(self) -> None:
        """Cancel every task, and end the thread unless it is kept. Stopping twice does nothing.
        A task that takes too long to end is left, and the thread is not kept."""
        with self._lock:
            self._stopped = True
            running, self._running = self._running, None
        if running is None:
            return
        loop, _ = running
        try:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(_CANCEL_SECONDS)
        except TimeoutError:
            _end(running)
        else:
            loops.give_back(running)


def _start() -> Running:
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
    """Wait, on the running event loop, until so much time has passed by a clock."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
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
