"""Benchmark the effect of HTTP clients on admissions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from time import thread_time
from typing import Final

import attrs

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.observe.web import HttpServer
from tools.bench.clock import now, timed
from tools.bench.environment import Helper, admit, node, pod
from tools.bench.model import Case, Measurement, Scale

_ROUNDS: Final = 3
_LONG: Final = 0.5
"""Minimum duration of a meaningful measurement, in seconds. A shorter measurement only shows that
the case runs."""
_GOAL: Final = 1.05
_NAME: Final = "admission with HTTP, a scraper at 1 Hz and an open page"


def cases(scale: Scale) -> list[Case]:
    """Return the case. The node has many devices and pods, so that responses are large."""
    run = partial(_with_clients, scale.devices, scale.pods, scale.samples / 100)
    return [Case("http", run)]


def _with_clients(devices: int, pods: int, seconds: float) -> list[Measurement]:
    """Measure admissions with and without HTTP clients, alternately."""
    alone, with_clients = _Times(), _Times()
    with node(devices) as (kubelet, _):
        admit(kubelet, *map(pod, range(pods - 1)))
        for _turn in range(_ROUNDS if seconds >= _LONG else 1):
            alone.admissions(kubelet, pods, seconds)
            with _http_clients(kubelet):
                with_clients.admissions(kubelet, pods, seconds)
    name = f"{_NAME}: {devices} devices, {pods} pods"
    measured = partial(Measurement, against="without HTTP", at_most_ratio=_GOAL)
    return [
        measured(name, with_clients.times, baseline=alone.times),
        # Use the mean: the median would hide delays of a few admissions.
        measured(f"{name}, mean", [fmean(with_clients.times)], baseline=[fmean(alone.times)]),
        # The CPU time of the thread does not depend on other programs on the machine.
        measured(
            f"{name}, processor time of its thread", with_clients.computed, baseline=alone.computed
        ),
    ]


@attrs.define
class _Times:
    """Times of admissions in ms: elapsed time, and CPU time of the thread."""

    times: list[float] = attrs.field(factory=list)
    computed: list[float] = attrs.field(factory=list)

    def admissions(self, kubelet: MockKubelet, number: int, seconds: float) -> None:
        """Admit and terminate the same pod repeatedly for ``seconds``."""
        end = now() + seconds
        while not self.times or now() < end:
            begin = thread_time()
            self.times.append(timed(partial(admit, kubelet, pod(number))))
            self.computed.append((thread_time() - begin) * 1000)
            kubelet.terminate(pod(number).uid)


@contextlib.contextmanager
def _http_clients(kubelet: MockKubelet) -> Iterator[None]:
    with (
        HttpServer(kubelet, "127.0.0.1:0") as server,
        Helper("tools.bench.http_clients", server.address),
    ):
        yield
