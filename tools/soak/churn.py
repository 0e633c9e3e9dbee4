"""Admit and terminate pods in several threads while their plugin restarts."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from time import monotonic
from typing import Final

import attrs

from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod
from tools.bench.baseline import Baseline
from tools.bench.clock import in_turns
from tools.harness.node import Node
from tools.harness.plugin import RESOURCE
from tools.harness.usage import Reading

_THREADS: Final = 4
_MAX_PODS: Final = 50
"""Maximum number of pods that one thread has at a time."""
# One device more than all pods can request. Then a rejection is always due to a restart of the
# plugin.
_DEVICES: Final = _THREADS * _MAX_PODS + 1
_SAMPLES: Final = 100


@attrs.frozen
class Amount:
    """Amount of work in the whole run."""

    admissions: int
    restarts: int
    minutes: float
    laps: int = 10

    def share(self, of: int, lap: int) -> int:
        """Return the share of a lap in the total number ``of``. Laps are counted from 0. The shares
        add up to ``of``."""
        return of * (lap + 1) // self.laps - of * lap // self.laps


@attrs.frozen
class Lap:
    """Result of one lap, and the resource use of the process after it."""

    number: int
    admitted: int
    restarted: int
    rejected: int
    """Number of rejected admissions while the plugin was not registered. Each was retried with
    another pod."""
    seconds: float
    p50: float
    """Median time of single admissions after the lap, in ms."""
    baseline: float
    """Median time in ms of an Allocate call and a durable write, measured alternately with the
    admissions."""
    reading: Reading

    @property
    def ratio(self) -> float:
        return self.p50 / self.baseline


class Soak(Node):
    """Kubelet with its plugin, and the threads that use both. For use as a context manager."""

    def __init__(self, on_admission: Callable[[], None] = lambda: None) -> None:
        """``on_admission`` is called after each admission."""
        super().__init__(_DEVICES)
        self._on_admission = on_admission
        self._numbers = itertools.count()

    def laps(self, amount: Amount) -> Iterator[Lap]:
        """Iterate over the laps until all work is done or the time is over.

        Raises Broken or InternalError if the check after a lap fails.
        """
        end = monotonic() + amount.minutes * 60
        for number in range(amount.laps):
            if monotonic() >= end:
                return
            share = _Share(
                amount.share(amount.admissions, number), amount.share(amount.restarts, number), end
            )
            begin = monotonic()
            self._churn(share)
            seconds = monotonic() - begin
            self.check({})
            p50, baseline = self._measure(max(1, min(_SAMPLES, share.admitted)))
            done = share.admitted, share.restarted, share.rejected
            yield Lap(number + 1, *done, seconds, p50, baseline, Reading.now())

    def _churn(self, share: _Share) -> None:
        with ThreadPoolExecutor(_THREADS + 1) as pool:
            workers = [pool.submit(self._admit_and_terminate, share) for _ in range(_THREADS)]
            workers.append(pool.submit(self._restart_plugin, share))
            for worker in workers:
                worker.result()

    def _admit_and_terminate(self, share: _Share) -> None:
        choice, mine = random.Random(), list[str]()
        try:
            while share.take():
                pod = self._pod()
                admission = self.kubelet.admit(pod)
                share.answer(admission.admitted)
                self._on_admission()
                # The plugin is restarting. Wait for it, instead of counting many rejections.
                if not admission.admitted:
                    self.kubelet.terminate(pod.uid)
                    self.wait_for_devices()
                    continue
                mine.append(pod.uid)
                if len(mine) == _MAX_PODS:
                    self.kubelet.terminate(mine.pop(choice.randrange(_MAX_PODS)))
        except BaseException:
            share.give_up()
            raise
        finally:
            # No pod may remain after the lap, even if this thread has failed.
            for uid in mine:
                self.kubelet.terminate(uid)

    def _restart_plugin(self, share: _Share) -> None:
        while share.wait_for_restart():
            self.start_plugin()
            share.restarted += 1

    def _measure(self, samples: int) -> tuple[float, float]:
        """Return the median times in ms of single admissions on an empty node, and of their
        baseline."""
        with Baseline(self.plugin_socket, self.kubelet.checkpoint_path) as raw:
            raw.refresh()
            admitted = list[str]()
            # Measure alternately, so that both have the same load of the machine.
            ours, baseline = in_turns(samples, partial(self._admit_one, admitted), raw.both)
            self.kubelet.terminate(*admitted)
        return median(ours), median(baseline)

    def _admit_one(self, admitted: list[str]) -> None:
        pod = self._pod()
        self.kubelet.admit(pod, start=False).raise_for_rejection()
        admitted.append(pod.uid)

    def _pod(self) -> Pod:
        number, limits = next(self._numbers), {ResourceName(RESOURCE): 1}
        container = Container(ContainerName("main"), limits, requests=limits)
        uid = PodUid(f"00000000-0000-4000-8000-{number:012}")
        return Pod(uid, f"pod-{number}", "soak", (container,))


class _Share:
    """Remaining work of a lap. Thread-safe."""

    def __init__(self, admissions: int, restarts: int, end: float) -> None:
        self.admitted = self.rejected = self.restarted = 0
        self._admissions, self._restarts, self._end = admissions, restarts, end
        self._begun = 0
        self._given_up = False
        # Guards all fields except ``restarted``, which only one thread changes.
        self._changed = threading.Condition()

    def take(self) -> bool:
        """True if the caller must make one more admission."""
        with self._changed:
            if self._is_over() or self._begun >= self._admissions:
                self._changed.notify_all()
                return False
            self._begun += 1
            return True

    def answer(self, admitted: bool) -> None:
        """Count the result of an admission."""
        with self._changed:
            self.admitted += admitted
            self.rejected += not admitted
            self._begun -= not admitted  # retried with another pod
            self._changed.notify_all()

    def give_up(self) -> None:
        """Stop the lap because an admission has failed."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def wait_for_restart(self) -> bool:
        """Wait until the next restart of the plugin is due. False if no more restarts are
        needed."""

        def is_due() -> bool:
            # Restarts are spread evenly over the admissions.
            part = (self.restarted + 1) * self._admissions // (self._restarts + 1)
            return self._is_over() or self.admitted >= part

        with self._changed:
            if self.restarted >= self._restarts:
                return False
            self._changed.wait_for(is_due, max(0.0, self._end - monotonic()))
            return not self._is_over()

    def _is_over(self) -> bool:
        return self._given_up or monotonic() >= self._end
