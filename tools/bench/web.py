"""What those who look at a kubelet over HTTP cost an admission."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Final

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.web import HttpServer
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
    alone: list[float] = []
    looked_at: list[float] = []
    with node(devices) as (kubelet, _):
        admit(kubelet, *map(pod, range(pods - 1)))
        for _turn in range(_ROUNDS if seconds >= _LONG else 1):
            alone += _admissions(kubelet, pods, seconds)
            with _onlookers(kubelet):
                looked_at += _admissions(kubelet, pods, seconds)
    name = f"{_NAME}: {devices} devices, {pods} pods"
    against = "without HTTP"
    return [
        Measurement(name, looked_at, against=against, baseline=alone, at_most_ratio=_GOAL),
        # A median does not see what few of them waited for.
        Measurement(
            f"{name}, mean",
            [fmean(looked_at)],
            against=against,
            baseline=[fmean(alone)],
            at_most_ratio=_GOAL,
        ),
    ]


def _admissions(kubelet: MockKubelet, number: int, seconds: float) -> list[float]:
    """The same pod comes and goes for so long."""
    taken: list[float] = []
    end = now() + seconds
    while not taken or now() < end:
        taken.append(timed(partial(admit, kubelet, pod(number))))
        kubelet.terminate(pod(number).uid)
    return taken


@contextlib.contextmanager
def _onlookers(kubelet: MockKubelet) -> Iterator[None]:
    with (
        HttpServer(kubelet, "127.0.0.1:0") as server,
        Helper("tools.bench.onlookers", server.address),
    ):
        yield
