"""A DRA driver on the published Go library, with the mock kubelet and the fake API server."""

from __future__ import annotations

import contextlib
import threading

import pytest

from devicemanager import MockKubelet, Settings
from devicemanager.apiserver import FakeApiServer
from devicemanager.io.watch import DirectoryWatch
from tests.interop.gobuild import DRA_DRIVER, SOURCES, go_test
from tests.paths import ROOT

NODE, DRIVER = "node-1", "gpu.vendor.com"


@pytest.fixture
def api():
    with FakeApiServer() as server:
        server.create("nodes", {"metadata": {"name": NODE}})
        yield server


@pytest.fixture
def kubelet(api, directory):
    settings = Settings(
        kubeconfig=api.kubeconfig(directory / "kubeconfig"), node_name=NODE, durability="process"
    )
    with MockKubelet(directory / "k", settings) as started:
        yield started


@pytest.fixture
def start(spawn, dra_driver, kubelet, directory):
    """Function that starts an instance of the driver and waits until it is connected."""

    def run(uid=""):
        data = kubelet.root / "plugins" / DRIVER
        data.mkdir(parents=True, exist_ok=True)
        mark = kubelet.mark()
        process = spawn(
            dra_driver,
            *("-kubeconfig", directory / "kubeconfig", "-node", NODE, "-driver", DRIVER),
            *("-registrar", kubelet.root / "plugins_registry", "-data", data, "-uid", uid),
        )
        kubelet.wait_for_event("driver-connected", text=DRIVER, since=mark)
        process.wait_for("publishing")
        return process

    return run


@pytest.fixture
def run_pod(api, kubelet):
    """Function that admits a pod with a claim on one device; returns its UID and the claim's."""

    def admit(name, device):
        results = [{"driver": DRIVER, "pool": "pool", "device": device, "request": "gpu"}]
        status = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        }
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        spec = {"devices": {"requests": [request]}}
        made = api.create("resourceclaims", {"metadata": {"name": name}, "spec": spec})
        api.change(
            "resourceclaims", name, lambda old: {**old, "status": status}, subresource="status"
        )
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [
                    {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
                ],
            },
        }
        return kubelet.admit(pod), made["metadata"]["uid"]

    return admit


def cdi_devices(admission):
    return admission.containers["main"].run_options.cdi_devices


def wait_for_slices(api):
    def are_there():
        return bool(api.all("resourceslices"))

    for _ in range(60):
        if are_there():
            break
        api.wait_for_change(api.version, 1.0, are_there)
    return [
        [device["name"] for device in each["spec"]["devices"]] for each in api.all("resourceslices")
    ]


def test_driver_registers_publishes_and_prepares(api, kubelet, start, run_pod):
    driver = start()
    assert wait_for_slices(api) == [["gpu-0", "gpu-1"]]
    admission, uid = run_pod("train", "gpu-1")
    assert driver.wait_for("prepare")["claims"] == [uid]
    assert cdi_devices(admission) == (f"vendor.com/gpu={uid}-gpu-1",)
    kubelet.terminate("uid-train")
    assert driver.wait_for("unprepare")["claims"] == [uid]
    assert driver.call("status", reply="status")["registered"]
    assert driver.terminate() == 0


def test_kubelet_and_driver_restart(kubelet, start, run_pod):
    driver = start()
    run_pod("first", "gpu-0")
    mark = kubelet.mark()
    kubelet.restart()
    kubelet.wait_for_event("driver-connected", text=DRIVER, since=mark)
    _, second = run_pod("second", "gpu-1")
    assert driver.terminate() == 0
    driver = start()
    kubelet.terminate("uid-second")
    assert driver.wait_for("unprepare")["claims"] == [second]


def test_rolling_update(kubelet, start, run_pod):
    old = start("1")
    _, claim = run_pod("train", "gpu-0")
    assert old.wait_for("prepare")["claims"] == [claim]
    new = start("2")
    assert old.terminate() == 0
    kubelet.terminate("uid-train")
    assert new.wait_for("unprepare")["claims"] == [claim]


def test_health_reaches_the_kubelet(kubelet, start):
    changed = threading.Event()
    state = kubelet.root / "dra_health_state"
    watch = DirectoryWatch(kubelet.root, lambda change: changed.set())
    watch.start()
    with contextlib.ExitStack() as stack:
        stack.callback(watch.stop)
        start().send("health", "gpu-0", "Unhealthy")
        while not state.exists() or '"Unhealthy"' not in state.read_text():
            assert changed.wait(10)
            changed.clear()


def test_go_tests_with_startdra_pass():
    """The driver runs in the process of ``go test``, as on the page for authors in Go."""
    done = go_test(SOURCES / DRA_DRIVER.directory)
    assert done.returncode == 0, done.stdout + done.stderr


def test_page_shows_the_tests_of_the_driver():
    page = (ROOT / "docs/go-author.md").read_text().partition("## A DRA driver")[2]
    block = page.partition("```go\n")[2].partition("```")[0]
    assert block.startswith("func start(")
    assert block in (SOURCES / DRA_DRIVER.directory / "driver_test.go").read_text()
