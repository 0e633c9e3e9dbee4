"""Admission: pod by pod, from several threads, and the end of pods."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from statistics import median

from devicemanager.core.pods import Pod
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from tools.bench.baseline import Baseline
from tools.bench.clock import timed
from tools.bench.environment import admit, node, pod
from tools.bench.model import Case, Measurement
from tools.bench.scale import Scale

_THREADS = 8
_FEW = 8
_FLAT = 200
"""Up to this many pods the goal is tighter, and a run is filled and emptied repeatedly."""
_BASELINE = "Allocate + durable write"


def cases(scale: Scale) -> list[Case]:
    """Admission at every size, then what happens to many pods together."""
    sized = [
        Case(f"admission-{devices}x{pods}", partial(admission, devices, pods, scale.samples))
        for devices, pods in scale.sizes
    ]
    return [
        *sized,
        Case("manifest", partial(_manifest, scale.samples)),
        Case("threads", partial(_threads, scale.pods)),
        Case("release", partial(_release, scale.pods)),
        Case("terminate", partial(_terminate, scale.pods)),
    ]


def admission(
    devices: int, pods: int, samples: int = 0, nodes: int = 0, settings: Settings | None = None
) -> list[Measurement]:
    """Pods until the node holds ``pods``, a baseline after each; again while that makes no
    more than ``samples``."""
    taken: list[float] = []
    baseline: list[float] = []
    with (
        node(devices, nodes, settings) as (kubelet, plugin),
        Baseline(plugin.socket, kubelet.checkpoint_path) as raw,
    ):
        for _ in range(max(1, samples // pods)):
            for number in range(pods):
                taken.append(timed(partial(admit, kubelet, pod(number))))
                raw.refresh()
                baseline.append(timed(raw.both))
            _empty(kubelet, pods)
    policy = f", {settings.topology_policy}, {nodes} NUMA nodes" if settings else ""
    measured = Measurement(
        f"admission{policy}: {devices} devices, 0-{pods} pods",
        taken,
        against=_BASELINE,
        baseline=baseline,
        at_most_ratio=1.2 if pods <= _FLAT else 1.5,
        rate="pods",
        devices=None if settings else devices,
        pods=pods,
    )
    return [measured, *(_last_tenth(measured) if pods > _FLAT else _besides(measured))]


def _besides(run: Measurement) -> Iterator[Measurement]:
    """What an admission takes that is neither the plugin's nor the disk's.

    Of the medians: the disk's own spread is larger than all of this.
    """
    yield Measurement(
        f"{run.name}, besides {_BASELINE}",
        [median(run.samples) - median(run.baseline)],
        at_most=0.25 if (run.pods or 0) <= _FEW else None,
    )


def _last_tenth(run: Measurement) -> Iterator[Measurement]:
    """The end of the run, when the node is full: growth that a median hides."""
    tenth = len(run.samples) // 10
    yield Measurement(
        f"{run.name}, the last tenth",
        run.samples[-tenth:],
        against=run.against,
        baseline=run.baseline[-tenth:],
        at_most_ratio=run.at_most_ratio,
    )


def _empty(kubelet: MockKubelet, pods: int) -> None:
    for number in range(pods):
        kubelet.terminate(pod(number).uid)


def _manifest(samples: int) -> list[Measurement]:
    """From a dict, and the container started: what a test does."""
    taken: list[float] = []
    baseline: list[float] = []
    with (
        node(samples) as (kubelet, plugin),
        Baseline(plugin.socket, kubelet.checkpoint_path) as raw,
    ):
        for number in range(samples):
            taken.append(timed(partial(kubelet.admit, _as_manifest(pod(number)))))
            raw.refresh()
            baseline.append(timed(raw.both))
    name = f"admission of a dict, containers started: {samples} devices and pods"
    return [Measurement(name, taken, against=_BASELINE, baseline=baseline)]


def _as_manifest(of: Pod) -> dict[str, object]:
    (container,) = of.containers
    limits = {name: str(count) for name, count in container.limits.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": of.name, "namespace": of.namespace, "uid": of.uid},
        "spec": {
            "containers": [
                {"name": container.name, "image": "bench", "resources": {"limits": limits}}
            ]
        },
    }


def _threads(pods: int) -> list[Measurement]:
    """A share of the pods from one thread, then as many from eight, in turns."""
    share = max(pods // 10, _THREADS)
    numbers = itertools.count()
    taken: dict[int, list[float]] = {1: [], _THREADS: []}
    with node(10 * share) as (kubelet, _):
        for threads in (1, _THREADS) * 5:
            batch = [pod(number) for number in itertools.islice(numbers, share)]
            with ThreadPoolExecutor(threads) as pool:
                whole = timed(partial(_map, pool, partial(admit, kubelet), batch))
            taken[threads].append(whole / share)
    return [
        Measurement(
            f"admission from {_THREADS} threads, per pod: {10 * share} devices",
            taken[_THREADS],
            against="one thread",
            baseline=taken[1],
            at_most_ratio=1.0,
            rate="pods",
        )
    ]


def _map(pool: Executor, action: Callable[[Pod], object], pods: Iterable[Pod]) -> None:
    """Do something with every pod, and raise what it raised."""
    for _ in pool.map(action, pods):
        pass


def _release(pods: int) -> list[Measurement]:
    released: list[float] = []
    baseline: list[float] = []
    with (
        node(pods) as (kubelet, plugin),
        Baseline(plugin.socket, kubelet.checkpoint_path) as raw,
    ):
        admit(kubelet, *map(pod, range(pods)))
        for number in range(pods):
            released.append(timed(partial(kubelet.terminate, pod(number).uid)))
            raw.refresh()
            baseline.append(timed(raw.write))
    return [
        Measurement(
            f"release of a pod: {pods}-0 pods",
            released,
            against="durable write",
            baseline=baseline,
        )
    ]


def _terminate(pods: int) -> list[Measurement]:
    """All at once, as when a node is drained."""
    with node(pods) as (kubelet, _):
        admit(kubelet, *map(pod, range(pods)))
        uids = [pod(number).uid for number in range(pods)]
        whole = timed(partial(kubelet.terminate, *uids))
    return [Measurement(f"{pods} pods terminated at once", [whole])]
