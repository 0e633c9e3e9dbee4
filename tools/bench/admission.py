"""Benchmark admissions, one at a time and from several threads, and the release of pods."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import TypeVar

from devicemanager.core.pods import Pod
from devicemanager.kubelet.settings import Settings
from tools.bench.baseline import Baseline
from tools.bench.clock import timed
from tools.bench.environment import admit, node, pod
from tools.bench.model import Case, Measurement, Scale

_T = TypeVar("_T")
_THREADS = 8
_FEW = 8
_FLAT = 200
"""Number of pods up to which the goal is stricter and the node is filled repeatedly."""
_BASELINE = "Allocate + durable write"


def cases(scale: Scale) -> list[Case]:
    """Return the cases: admission at each size, and operations on many pods."""
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
    """Measure admissions while the node is filled with ``pods`` pods. The baseline is measured
    after each one.

    The node is filled repeatedly until there are about ``samples`` samples.
    """
    taken: list[float] = []
    baseline: list[float] = []
    with (
        node(devices, nodes, settings) as (kubelet, plugin),
        Baseline(plugin.socket, kubelet.checkpoint_path) as raw,
    ):
        for _ in range(max(1, samples // pods)):
            pods_to_admit = map(pod, range(pods))
            times, least = _with_baseline(partial(admit, kubelet), pods_to_admit, raw, raw.both)
            taken += times
            baseline += least
            for number in range(pods):
                kubelet.terminate(pod(number).uid)
    # Without settings, the name has no policy: --compare finds rows by name.
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
    return [measured, *(_last_tenth(measured) if pods > _FLAT else _overhead(measured))]


def _with_baseline(
    action: Callable[[_T], object], items: Iterable[_T], raw: Baseline, least: Callable[[], object]
) -> tuple[list[float], list[float]]:
    """Measure ``action`` for each item, and the baseline ``least`` after each. Return both lists of
    times in ms."""
    taken, baseline = [], []
    for item in items:
        taken.append(timed(partial(action, item)))
        # The baseline must write the same bytes as the action.
        raw.refresh()
        baseline.append(timed(least))
    return taken, baseline


def _overhead(run: Measurement) -> Iterator[Measurement]:
    """Yield the time of an admission without the plugin's call and the disk write.

    It is the difference of the medians, because single disk writes vary by more than this
    difference.
    """
    yield Measurement(
        f"{run.name}, beyond {_BASELINE}",
        [median(run.samples) - median(run.baseline)],
        at_most=0.25 if (run.pods or 0) <= _FEW else None,
    )


def _last_tenth(run: Measurement) -> Iterator[Measurement]:
    """Yield the last tenth of the samples, when the node is full. The median of all samples would
    hide growth."""
    tenth = len(run.samples) // 10
    yield Measurement(
        f"{run.name}, the last tenth",
        run.samples[-tenth:],
        against=run.against,
        baseline=run.baseline[-tenth:],
        at_most_ratio=run.at_most_ratio,
    )


def _manifest(samples: int) -> list[Measurement]:
    """Measure admissions of manifests with started containers, as in a test."""
    with (
        node(samples) as (kubelet, plugin),
        Baseline(plugin.socket, kubelet.checkpoint_path) as raw,
    ):
        manifests = (_as_manifest(pod(number)) for number in range(samples))
        taken, baseline = _with_baseline(kubelet.admit, manifests, raw, raw.both)
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
    """Admit a tenth of the pods from one thread, then a tenth from eight threads, and repeat."""
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
    """Call ``action`` for each pod in the pool's threads, and raise its exceptions."""
    for _ in pool.map(action, pods):
        pass


def _release(pods: int) -> list[Measurement]:
    with (
        node(pods) as (kubelet, plugin),
        Baseline(plugin.socket, kubelet.checkpoint_path) as raw,
    ):
        admit(kubelet, *map(pod, range(pods)))
        uids = (pod(number).uid for number in range(pods))
        released, baseline = _with_baseline(kubelet.terminate, uids, raw, raw.write)
    return [
        Measurement(
            f"release of a pod: {pods}-0 pods",
            released,
            against="durable write",
            baseline=baseline,
        )
    ]


def _terminate(pods: int) -> list[Measurement]:
    """Measure the termination of all pods in one call, as for a drained node."""
    with node(pods) as (kubelet, _):
        admit(kubelet, *map(pod, range(pods)))
        uids = [pod(number).uid for number in range(pods)]
        whole = timed(partial(kubelet.terminate, *uids))
    return [Measurement(f"{pods} pods terminated at once", [whole])]
