"""Pods that come and go from several threads, while their plugin starts anew."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import attrs

import checkpoint
from devicemanager.core.errors import InternalError
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from tools.bench.baseline import Baseline
from tools.bench.clock import in_turns, now
from tools.bench.environment import Helper, pod
from tools.bench.plugin import RESOURCE, socket_name
from tools.soak.readings import Lap, Reading

_THREADS: Final = 4
_PODS: Final = 50
"""The most pods of one thread at a time."""
_DEVICES: Final = _THREADS * _PODS + 1
_SAMPLES: Final = 100
_TIMEOUT: Final = 60.0

_SETTINGS: Final = Settings(calls_kept=100)
"""Few calls are kept, so that the record is full after the first lap and grows no more: calls
other than Allocate are as few as restarts."""


@attrs.frozen
class Amount:
    """How much of everything, over the whole soak."""

    admissions: int
    restarts: int
    minutes: float
    laps: int = 10

    def share(self, of: int, lap: int) -> int:
        """What falls to one lap, counted from 0, so that all together make the whole."""
        return of * (lap + 1) // self.laps - of * lap // self.laps


class Soak:
    """A kubelet and its plugin, and the churn. A context manager."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        """``told`` is called after each admission."""
        self._told = told
        self._stack = ExitStack()
        self._kubelet = MockKubelet(settings=_SETTINGS)
        self._numbers = itertools.count()

    def __enter__(self) -> Soak:
        with ExitStack() as stack:
            stack.enter_context(self._kubelet)
            directory = self._kubelet.plugin_dir
            # It is ended first, as the kubelet's directory is its own.
            self._plugin = stack.enter_context(Helper("tools.soak.plugin", directory, _DEVICES))
            self._socket: Path = directory / socket_name(0)
            self._restart()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def laps(self, amount: Amount) -> Iterator[Lap]:
        """Churn lap by lap, with a check in the quiet after each, until all is done or the
        time is over. Raises InternalError for what a check finds."""
        end = now() + amount.minutes * 60
        for number in range(amount.laps):
            if now() >= end:
                return
            share = _Share(
                amount.share(amount.admissions, number), amount.share(amount.restarts, number), end
            )
            begin = now()
            self._churn(share)
            seconds = now() - begin
            self._check()
            p50, baseline = self._measure(max(1, min(_SAMPLES, share.admitted)))
            yield Lap(
                number + 1,
                share.admitted,
                share.restarted,
                share.rejected,
                seconds,
                p50,
                baseline,
                Reading.now(),
            )

    # -- churn -----------------------------------------------------------------------

    def _churn(self, share: _Share) -> None:
        with ThreadPoolExecutor(_THREADS + 1) as pool:
            workers = [pool.submit(self._come_and_go, share) for _ in range(_THREADS)]
            workers.append(pool.submit(self._restart_now_and_then, share))
            for worker in workers:
                worker.result()

    def _come_and_go(self, share: _Share) -> None:
        choice, mine = random.Random(), list[str]()
        try:
            while share.take():
                each = pod(next(self._numbers))
                admission = self._kubelet.admit(each)
                share.answer(admission.admitted)
                self._told()
                if not admission.admitted:
                    self._kubelet.terminate(each.uid)
                    self._kubelet.wait_for_resource(RESOURCE, _DEVICES, _TIMEOUT)
                    continue
                mine.append(each.uid)
                if len(mine) == _PODS:
                    self._kubelet.terminate(mine.pop(choice.randrange(_PODS)))
        except BaseException:
            share.give_up()
            raise
        finally:
            for uid in mine:
                self._kubelet.terminate(uid)

    def _restart_now_and_then(self, share: _Share) -> None:
        while share.wait_for_restart():
            self._restart()
            share.restarted += 1

    def _restart(self) -> None:
        self._plugin.ask("start")
        self._kubelet.wait_for_resource(RESOURCE, _DEVICES, _TIMEOUT)

    # -- quiet -----------------------------------------------------------------------

    def _check(self) -> None:
        """Everything agrees, and nothing of all the pods is left."""
        self._kubelet.check()
        self._kubelet.manager.self_check()
        left = len(self._kubelet.pods()), len(self._kubelet.manager.pods())
        if any(left):
            raise InternalError(f"{left[0]} pods are known and {left[1]} hold devices, not 0")
        saved = checkpoint.load(self._kubelet.checkpoint_path)
        if saved.entries:
            raise InternalError(f"the checkpoint still has {len(saved.entries)} entries")

    def _measure(self, samples: int) -> tuple[float, float]:
        """p50 of single admissions on an almost empty node, and that of their baseline."""
        with Baseline(self._socket, self._kubelet.checkpoint_path) as raw:
            raw.refresh()
            ours, baseline = in_turns(samples, partial(self._once, held := list[str]()), raw.both)
            self._kubelet.terminate(*held)
        return median(ours), median(baseline)

    def _once(self, held: list[str]) -> None:
        each = pod(next(self._numbers))
        self._kubelet.admit(each, start=False).raise_for_rejection()
        held.append(each.uid)


class _Share:
    """What is still to do in a lap; its methods may be called from any thread."""

    def __init__(self, admissions: int, restarts: int, end: float) -> None:
        self.admitted = self.rejected = self.restarted = 0
        self._admissions, self._restarts, self._end = admissions, restarts, end
        self._begun = 0
        self._given_up = False
        # Guards everything above but ``restarted``, which one thread counts.
        self._changed = threading.Condition()

    def take(self) -> bool:
        """Whether there is one more admission to do; the caller then does it."""
        with self._changed:
            if self._is_over() or self._begun >= self._admissions:
                self._changed.notify_all()
                return False
            self._begun += 1
            return True

    def answer(self, admitted: bool) -> None:
        with self._changed:
            self.admitted += admitted
            self.rejected += not admitted
            self._begun -= not admitted  # to be done again
            self._changed.notify_all()

    def give_up(self) -> None:
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def wait_for_restart(self) -> bool:
        """Wait until as large a part is admitted as restarts are done; False: no more."""

        def is_due() -> bool:
            part = (self.restarted + 1) * self._admissions // (self._restarts + 1)
            return self._is_over() or self.admitted >= part

        with self._changed:
            if self.restarted >= self._restarts:
                return False
            self._changed.wait_for(is_due, max(0.0, self._end - now()))
            return not self._is_over()

    def _is_over(self) -> bool:
        return self._given_up or now() >= self._end
