"""Benchmark topology policies, compared with policy none, and topology hints alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from devicemanager.kubelet.settings import Settings
from tools.bench.admission import admission
from tools.bench.clock import in_turns, timed
from tools.bench.environment import admit, node, pod, topology
from tools.bench.model import Case, Measurement, Scale

_POLICIES: Final = (("none", 8), ("single-numa-node", 2), ("best-effort", 8))
_MANY_NODES: Final = 8


def cases(scale: Scale) -> list[Case]:
    """Return the cases: each topology policy, the largest node, and hints."""
    pods, devices = scale.pods, scale.devices
    best_effort = _settings("best-effort", _MANY_NODES)
    return [
        Case("policies", partial(_policies, pods)),
        Case(
            f"best-effort-{devices}x{pods}",
            partial(admission, devices, pods, 0, _MANY_NODES, best_effort),
        ),
        Case("hints", partial(_hints, devices, scale.samples)),
    ]


def _settings(policy: str, nodes: int) -> Settings:
    return Settings(topology_policy=policy, numa=topology(nodes))


def _policies(pods: int) -> list[Measurement]:
    """Run one kubelet per policy. Each pod is admitted by all of them, one after another."""
    with ExitStack() as stack:
        kubelets = [
            stack.enter_context(node(pods, nodes, _settings(policy, nodes)))[0]
            for policy, nodes in _POLICIES
        ]
        # Alternate between the kubelets, so that noise of the machine affects all policies equally.
        times: Sequence[list[float]] = [[] for _ in kubelets]
        for number in range(pods):
            for kubelet, taken in zip(kubelets, times, strict=True):
                taken.append(timed(partial(admit, kubelet, pod(number))))
    return [
        Measurement(
            f"admission, {policy}, {nodes} NUMA nodes: {pods} devices, 0-{pods} pods",
            taken,
            against="policy none",
            baseline=times[0],
            at_most_ratio=1.5,
            rate="pods",
        )
        for (policy, nodes), taken in zip(_POLICIES[1:], times[1:], strict=True)
    ]


def _hints(devices: int, samples: int) -> list[Measurement]:
    """Measure the topology hints of a container and its pod, computed after each allocation."""
    with node(devices, _MANY_NODES, _settings("best-effort", _MANY_NODES)) as (kubelet, _):
        numbers = iter(range(min(samples, devices)))
        _, taken = in_turns(
            min(samples, devices),
            lambda: admit(kubelet, pod(next(numbers))),
            lambda: kubelet.manager.hints(pod(devices)),
        )
    name = f"hints of a container and its pod: {devices} devices, {_MANY_NODES} NUMA nodes"
    return [Measurement(name, taken, at_most=1)]
