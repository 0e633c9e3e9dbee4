"""A driver as a program: the example, started and stopped as on a node."""

import os
import signal
import subprocess
import sys

import pytest

from devicemanager.driver import ClaimError, Driver, serve
from devicemanager.plugin import ConfigurationError
from tests.driver.conftest import DRIVER, NODE
from tests.driver.kubelet_calls import KubeletCalls
from tests.paths import ROOT

EXAMPLE = ROOT / "examples/python/gpu_driver.py"


@pytest.fixture
def program(api, directory):
    """The example driver with two devices, registered."""
    devices = directory / "dev"
    devices.mkdir()
    for name in ("gpu0", "gpu1"):
        (devices / name).write_text("")
    environment = {
        "NODE_NAME": NODE,
        "KUBECONFIG": str(api.kubeconfig(directory / "kubeconfig")),
        "KUBELET_REGISTRAR_DIRECTORY_PATH": str(directory / "plugins_registry"),
        "KUBELET_PLUGINS_DIRECTORY_PATH": str(directory / "plugins"),
        "CDI_ROOT": str(directory / "cdi"),
        "GPU_DIRECTORY": str(devices),
    }
    process = subprocess.Popen([sys.executable, EXAMPLE], env={**os.environ, **environment})
    yield process
    process.kill()
    process.wait()


def test_example_driver(program, api, claim, directory):
    # The slice comes last, so the sockets exist when it is there.
    api.wait_for_change(api.version, 30, lambda: bool(api.all("resourceslices")))
    [slice_] = api.all("resourceslices")
    assert [each["name"] for each in slice_["spec"]["devices"]] == ["gpu0", "gpu1"]
    registry = directory / "plugins_registry"
    train = claim("train", "gpu1")
    uid = train["metadata"]["uid"]
    with KubeletCalls(registry / f"{DRIVER}-reg.sock") as kubelet:
        assert [each.health for each in next(kubelet.health()).devices] == [1, 1]
        assert kubelet.prepare(train)[uid].devices
    program.send_signal(signal.SIGTERM)
    assert program.wait(10) == 0
    assert list(registry.iterdir()) == []
    assert len(list((directory / "cdi").iterdir())) == 1


class Empty(Driver):
    def resources(self):
        return []

    def prepare(self, claim):
        raise ClaimError


@pytest.mark.parametrize(
    ("driver", "name", "error", "text"),
    [
        (Empty, DRIVER, TypeError, r"expected a driver, not a class: use Empty\(\)"),
        (Empty(), "GPU", ConfigurationError, "invalid driver name 'GPU': use a DNS name such as"),
        (Empty(), "a" * 64, ConfigurationError, "with at most 63 characters"),
    ],
)
def test_invalid_arguments(driver, name, error, text):
    with pytest.raises(error, match=text):
        serve(driver, name)
