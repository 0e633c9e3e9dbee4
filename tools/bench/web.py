"""What those who look at a kubelet over HTTP cost an admission."""

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
from tools.bench.model import Case, Measurement
from tools.bench.scale import Scale

_ROUNDS: Final = 3
_LONG: Final = 0.5
"""Seconds from which on a turn says something; a shorter one only shows that it runs."""
_GOAL: Final = 1.05
_NAME: Final = "admission with HTTP, a scraper at 1 Hz and an open page"


def cases(scale: Scale) -> list[Case]:
    """On a node with many devices and pods, so that there is something to look at."""
    seconds = scale.samples / 100
    run = partial(_looked_at, scale.devices, scale.pods, seconds)
    return [Case("http", run)]


def _looked_at(devices: int, pods: int, seconds: float) -> list[Measurement]:
    """Admissions alone and with onlookers, in turns."""
    alone, looked_at = _Taken(), _Taken()
    with node(devices) as (kubelet, _):
        admit(kubelet, *map(pod, range(pods - 1)))
        for _turn in range(_ROUNDS if seconds >= _LONG else 1):
            alone.admissions(kubelet, pods, seconds)
            with _onlookers(kubelet):
                looked_at.admissions(kubelet, pods, seconds)
    name = f"{_NAME}: {devices} devices, {pods} pods"
    measured = partial(Measurement, against="without HTTP", at_most_ratio=_GOAL)
    return [
        measured(name, looked_at.times, baseline=alone.times),
        # A median does not see what few of them waited for.
        measured(f"{name}, mean", [fmean(looked_at.times)], baseline=[fmean(alone.times)]),
        # What others on the machine do has no part in it.
        measured(
            f"{name}, processor time of its thread", looked_at.computed, baseline=alone.computed
        ),
    ]


@attrs.define
class _Taken:
    """What admissions took, in ms."""

    times: list[float] = attrs.field(factory=list)
    computed: list[float] = attrs.field(factory=list)

    def admissions(self, kubelet: MockKubelet, number: int, seconds: float) -> None:
        """The same pod comes and goes for so long."""
        end = now() + seconds
        while not self.times or now() < end:
            begin = thread_time()
            self.times.append(timed(partial(admit, kubelet, pod(number))))
            self.computed.append((thread_time() - begin) * 1000)
            kubelet.terminate(pod(number).uid)


@contextlib.contextmanager
def _onlookers(kubelet: MockKubelet) -> Iterator[None]:
    with (
        HttpServer(kubelet, "127.0.0.1:0") as server,
        Helper("tools.bench.onlookers", server.address),
    ):
        yield
