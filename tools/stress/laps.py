"""A kubelet under stress, lap by lap: everything at once, then a check in the quiet."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain, count
from typing import Final

import attrs

import checkpoint
from devicemanager.core.errors import InternalError
from podresources.client import PodResourcesClient
from podresources.values import Pod
from tools.bench.clock import now
from tools.bench.plugin import RESOURCE
from tools.soak.readings import Reading
from tools.stress.actor import Actor, Devices
from tools.stress.node import Node

_PODS: Final = 12
"""The most pods of one thread at a time."""
_MOST: Final = 4
"""The most devices of one pod."""


@attrs.frozen
class Lap:
    """What was done in one lap, and the process in the quiet after it."""

    done: Counter[str]
    reading: Reading


class Stress:
    """A kubelet with a plugin, and the threads that use it. A context manager."""

    def __init__(self, threads: int, seed: int) -> None:
        self._stack = ExitStack()
        # One device less than could be asked for: some pods are rejected.
        self._node = Node(threads * _PODS * _MOST - 1)
        numbers, choice = count(), random.Random(seed)
        self._actors = [
            Actor(self._node, numbers, random.Random(choice.random()), _PODS, _MOST)
            for _ in range(threads)
        ]

    def __enter__(self) -> Stress:
        self._stack.enter_context(self._node)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lap(self, seconds: float) -> Lap:
        """Stress for so long, then check. Raises InternalError for what does not agree."""
        end = now() + seconds
        with ThreadPoolExecutor(len(self._actors)) as pool:
            works = [pool.submit(actor.work, end) for actor in self._actors]
            try:
                for work in works:
                    work.result()
            except BaseException:
                for actor in self._actors:
                    actor.give_up()
                raise
        self._check()
        done = sum((actor.told() for actor in self._actors), Counter[str]())
        return Lap(done, Reading.now())

    def _check(self) -> None:
        kubelet = self._node.kubelet
        kubelet.wait_for_resource(RESOURCE, self._node.devices, self._node.timeout)
        kubelet.check()
        kubelet.manager.self_check()
        held = {uid: ids for actor in self._actors for uid, ids in actor.held.items()}
        _check_disjoint(held)
        _check_same(
            "the pods", {uid: _ids_of(kubelet.devices(uid)) for uid in kubelet.pods()}, held
        )
        _check_same("the checkpoint", _saved(checkpoint.load(kubelet.checkpoint_path)), held)
        with PodResourcesClient(kubelet.pod_resources_socket) as client:
            _check_same("PodResources", {p.name: _listed(p) for p in client.list()}, held)
        for actor in self._actors:
            actor.end_all()
        left = len(kubelet.pods()), len(kubelet.manager.pods())
        if any(left):
            raise InternalError(f"{left[0]} pods are known and {left[1]} hold devices, not 0")
        if entries := checkpoint.load(kubelet.checkpoint_path).entries:
            raise InternalError(f"the checkpoint still has {len(entries)} entries")


def _check_disjoint(held: Mapping[str, Devices]) -> None:
    holders: dict[str, str] = {}
    for uid, devices in held.items():
        for device in devices:
            other = holders.setdefault(device, uid)
            if other != uid:
                raise InternalError(f"{device} was given to {other} and to {uid}")


def _check_same(who: str, said: Mapping[str, Devices], held: Mapping[str, Devices]) -> None:
    if said != held:
        wrong = sorted(uid for uid in said.keys() | held.keys() if said.get(uid) != held.get(uid))
        raise InternalError(
            f"{who} and what was told differ in {len(wrong)} pods, the first is {wrong[0]}: "
            f"{sorted(said.get(wrong[0], ()))}, told {sorted(held.get(wrong[0], ()))}"
        )


def _ids_of(devices: Mapping[str, Mapping[str, Iterable[str]]]) -> Devices:
    return frozenset(chain.from_iterable(ids for of in devices.values() for ids in of.values()))


def _listed(pod: Pod) -> Devices:
    return frozenset(id_ for c in pod.containers for d in c.devices for id_ in d.device_ids)


def _saved(saved: checkpoint.Checkpoint) -> dict[str, Devices]:
    found: dict[str, set[str]] = {}
    for entry in saved.entries or ():
        for ids in (entry.device_ids or {}).values():
            found.setdefault(entry.pod_uid, set()).update(ids or ())
    return {uid: frozenset(ids) for uid, ids in found.items()}
