"""Nodes on many threads: pods come and go while nodes restart, reboot and stop reporting."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable

from devicemanager.client.errors import ApiError
from devicemanager.client.work_queue import WorkQueue
from devicemanager.cluster.nodes.node import ClusterNode
from devicemanager.io.clock import SystemClock
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from tests.cluster.world import GPU, World

NODES, PODS, SEED = 6, 150, 7


def test_no_pod_is_lost_and_no_device_stays_allocated() -> None:
    world, clock, chance = World(), SystemClock(), random.Random(SEED)
    work_queue = WorkQueue(16, warn=world.warnings.append)
    for name in (f"n-{number}" for number in range(NODES)):
        kubelet = InMemoryKubelet(None, {GPU: 8}, clock=clock)
        node = ClusterNode(
            name,
            kubelet,
            api=world,
            work_queue=work_queue,
            leases=world.leases,
            clock=clock,
            warn=world.warnings.append,
        )
        node.join()
        node.on_pod_list([])
        world.nodes[name] = node
    over = threading.Event()
    watch = threading.Thread(target=lambda: follow(world, over))
    watch.start()
    try:
        run_pods(world, chance)
        until(lambda: not world.all("pods"), world)
        until(lambda: all(map(is_empty, world.nodes.values())), world)
    finally:
        over.set()
        watch.join()
        for node in world.nodes.values():
            node.leave("keep")
        work_queue.close()
    for node in world.nodes.values():
        node.kubelet.self_check()
        assert not any(each.pod for each in node.kubelet.inventory()), node.name
        assert node._pods.pods() == ()
    assert world.warnings == []


def run_pods(world: World, chance: random.Random) -> None:
    live: list[str] = []
    nodes = list(world.nodes.values())
    for number in range(PODS):
        name = f"p-{number}"
        world.run(name, chance.choice(nodes).name, gpus=chance.choice([1, 2, 4]), settle=False)
        live.append(name)
        if len(live) > 30:
            remove(world, live.pop(chance.randrange(len(live))), chance.random() < 0.2)
        if chance.random() < 0.2:
            node = chance.choice(nodes)
            chance.choice([node.restart, node.reboot, node.silent])()
    for node in nodes:
        node.silent(False)
    for name in live:
        remove(world, name, False)


def remove(world: World, name: str, by_force: bool) -> None:
    body = {"gracePeriodSeconds": 0} if by_force else {}
    with contextlib.suppress(ApiError):
        world.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", body)


def follow(world: World, over: threading.Event) -> None:
    """Deliver changes in order, as a watch does."""
    while not over.is_set():
        if not world.deliver():
            over.wait(0.002)


def is_empty(node: ClusterNode) -> bool:
    return not node.kubelet.pods() and not node._pods.pods()


def until(condition: Callable[[], bool], world: World) -> None:
    end = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < end, (world.all("pods")[:2], world.warnings)
        time.sleep(0.02)
