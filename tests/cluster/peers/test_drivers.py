"""DRA drivers that stop and return, and real drivers on full nodes (``join --full``), with the
scheduler of a fake or a real control plane."""

import contextlib
import os
import subprocess
import sys

import pytest

from devicemanager.cluster import Cluster, NodeOptions, NodeSpecs
from tests.cluster.peers.test_dra import (
    PREPARE,
    claimed,
    claims,
    create_class,
    driver_of,
    event,
    is_new,
    join,
    slice_of,
)

PROGRAM = """
import sys
from devicemanager.driver import Driver, DriverServer


class Gpus(Driver):
    def resources(self):
        return ["gpu-0", "gpu-1"]

    def prepare(self, claim):
        return [device.prepared(envs={"GPU": device.device}) for device in claim.devices]


with DriverServer(Gpus(), sys.argv[1]) as server:
    while not server.wait_registered():
        pass
    print("registered", flush=True)
    sys.stdin.read()
"""
"""A driver with two devices, named by its argument."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def short_delay(monkeypatch):
    """Wipe the slices of a stopped driver after one second in place of 30."""
    for module in ("devicemanager.cluster.dra.slices", "devicemanager.core.dra.drivers"):
        monkeypatch.setattr(f"{module}.WIPE_DELAY", 1.0)


def unschedulable(peer, name):
    conditions = peer.get(name)["status"].get("conditions", ())
    return any(each.get("reason") == "Unschedulable" for each in conditions)


@pytest.mark.usefixtures("short_delay")
def test_slices_of_a_stopped_driver_return_with_it(cluster, peer):
    (node,) = join(cluster, peer, 1)
    before = peer.wait(lambda: slice_of(peer, node))
    claimed(peer, "a")
    peer.phase("a", "Running")
    node.stop_plugin(driver_of(peer))
    peer.wait(lambda: slice_of(peer, node) is None)
    claimed(peer, "b")
    peer.wait(lambda: unschedulable(peer, "b"))
    node.start_plugin(driver_of(peer))
    peer.phase("b", "Running")
    found = slice_of(peer, node)
    assert is_new(peer, node, before)
    assert found["spec"]["devices"] == before["spec"]["devices"]
    assert peer.get("a")["status"]["phase"] == "Running"


def test_pod_that_is_bound_while_the_driver_is_stopped_stays_pending(cluster, peer):
    (node,) = join(cluster, peer, 1)
    peer.wait(lambda: slice_of(peer, node))
    node.stop_plugin(driver_of(peer))
    claimed(peer, "a")
    assert event(peer, PREPARE).endswith(f"DRA driver {driver_of(peer)} is not registered")
    assert peer.get("a")["status"]["phase"] == "Pending"


@pytest.fixture
def start_driver(peer, directory):
    """Start a driver on a full node, whose directory is ``node-0``. Wait until it is registered:
    without its driver, a pod is tried again only after a minute."""
    root = directory / "node-0"
    variables = {
        "NODE_NAME": f"{peer.name}-0",
        "KUBECONFIG": peer.kubeconfig,
        "KUBELET_REGISTRAR_DIRECTORY_PATH": root / "plugins_registry",
        "KUBELET_PLUGINS_DIRECTORY_PATH": root / "plugins",
        "CDI_ROOT": root / "cdi",
    }
    environment = {**os.environ, **{name: str(each) for name, each in variables.items()}}
    with contextlib.ExitStack() as stack:

        def start_driver():
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, driver_of(peer)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
            stack.callback(process.kill)
            assert process.stdout.readline() == "registered\n"
            return process

        yield start_driver


def running(peer):
    phases = {each["metadata"]["name"]: each["status"]["phase"] for each in peer.pods()}
    return sorted(name for name, phase in phases.items() if phase == "Running")


def test_full_node_prepares_claims_with_a_real_driver(join_command, start_driver, peer, directory):
    create_class(peer)
    words = ["--prefix", peer.name, "--nodes", 2, "--label", f"group={peer.name}"]
    join_command(*words, "--full", 1, "--root", directory)
    peer.ready(f"{peer.name}-0", f"{peer.name}-1")
    start_driver()
    for name in "abc":
        claimed(peer, name)
    peer.wait(lambda: len(running(peer)) == 2)
    cdi = directory / "node-0" / "cdi"
    assert len(list(cdi.iterdir())) == 2
    first, second = running(peer)
    (waiting,) = set("abc") - {first, second}
    peer.delete(first)
    peer.phase(waiting, "Running")
    # The second node has no driver.
    assert {each["spec"]["nodeName"] for each in peer.pods()} == {f"{peer.name}-0"}
    for name in (second, waiting):
        peer.delete(name)
    peer.wait(lambda: not peer.pods() and not claims(peer))
    assert not list(cdi.iterdir())


@pytest.mark.usefixtures("short_delay")
def test_slices_of_a_real_driver_return_with_it(start_driver, peer, directory):
    create_class(peer)
    options = NodeOptions(labels={"group": peer.name}, status_interval=0.5)
    specs = NodeSpecs.numbered(
        peer.name, 1, options=options, full=1, root=directory, kubeconfig=peer.kubeconfig
    )
    warnings = []
    with Cluster.connect(peer.kubeconfig, warn=warnings.append) as cluster:
        (node,) = cluster.join_specs(specs)
        peer.ready(node.name)
        driver = start_driver()
        before = peer.wait(lambda: slice_of(peer, node))
        claimed(peer, "a")
        peer.phase("a", "Running")
        driver.kill()
        peer.wait(lambda: slice_of(peer, node) is None)
        assert peer.get("a")["status"]["phase"] == "Running"
        # Its claim cannot be unprepared until the driver is back.
        peer.delete("a")
        peer.wait(lambda: [line for line in warnings if "unprepare" in line])
        assert peer.get("a")["status"]["phase"] == "Running"
        start_driver()
        peer.wait(lambda: is_new(peer, node, before))
        peer.gone("a")
        # The kubelet wipes slices when it restarts; the driver is there and repairs them.
        before, mark = slice_of(peer, node), node.kubelet.mark()
        node.restart()
        peer.wait(lambda: is_new(peer, node, before))
        # Until then, a pod is tried again only after a minute.
        node.kubelet.wait_for_event("driver-connected", since=mark, timeout=60)
        claimed(peer, "b")
        peer.phase("b", "Running")
