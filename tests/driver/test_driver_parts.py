"""Parts of the framework without sockets: names of files, old health, settings."""

from pathlib import Path

import pytest

from devicemanager.client.errors import Unavailable
from devicemanager.driver.api import ResourceApi
from devicemanager.driver.health import health_message, without_old
from devicemanager.driver.paths import DriverPaths, in_kubelet_directory
from devicemanager.driver.services import Report
from devicemanager.driver.settings import DriverSettings, driver_paths
from devicemanager.driver.values import DeviceHealth
from devicemanager.plugin.errors import ConfigurationError
from podresources.errors import SocketPathError

DRIVER = "gpu.vendor.com"


UID = "11111111-2222-3333-4444-555555555555"


def test_sockets_have_the_names_of_the_go_library():
    plain = in_kubelet_directory(DRIVER, Path("/k"))
    assert plain.registration_socket == Path("/k/plugins_registry/gpu.vendor.com-reg.sock")
    assert plain.service_socket == Path("/k/plugins/gpu.vendor.com/dra.sock")


@pytest.mark.parametrize(
    ("driver", "length", "name"),
    [
        # The names were made with RollingUpdateRegistrarSocketFile of the Go library, v0.37.2.
        (DRIVER, 20, f"{DRIVER}-{UID}-reg.sock"),
        (DRIVER, 60, f"{DRIVER}-Zm_2zKpbPAc-reg.sock"),
        ("a" * 63, 20, f"{'a' * 63}-Zm_2zKpbPAc-reg.sock"),
        ("a" * 63, 40, "dra-9eqL-qWHzLm-BSQmYa9FdA-reg.sock"),
    ],
)
def test_long_paths_get_shorter_names(driver, length, name):
    made = DriverPaths.of(driver, Path("/" + "r" * (length - 1)), Path("/d"), Path("/c"), UID)
    assert made.registration_socket.name == name


def test_path_that_is_too_long():
    with pytest.raises(SocketPathError, match="use a shorter directory"):
        in_kubelet_directory(DRIVER, Path("/" + "x" * 100))


def test_path_that_is_too_long_because_of_the_name():
    with pytest.raises(ConfigurationError, match="makes the path of a socket too long: use a name"):
        in_kubelet_directory("a" * 90, Path("/" + "x" * 20))


def test_report_to_a_new_stream_has_no_old_state():
    devices = [
        health_message(DeviceHealth("a", "Unhealthy", "hot", timeout=5), "p", 100),
        health_message(DeviceHealth("b", timeout=50), "p", 100),
        health_message(DeviceHealth("c", timeout=0), "p", 100),
        health_message(DeviceHealth("d", timeout=-1), "p", 100),
    ]
    made = without_old(Report(devices=devices), 129)
    assert [(each.health, each.message) for each in made.devices] == [(0, ""), *[(1, "")] * 3]


def test_settings_from_the_environment(monkeypatch, tmp_path):
    for name, value in (
        ("NODE_NAME", "n"),
        ("POD_UID", "u"),
        ("KUBELET_REGISTRAR_DIRECTORY_PATH", "/r"),
        ("KUBELET_PLUGINS_DIRECTORY_PATH", "/p"),
        ("CDI_ROOT", "/c"),
    ):
        monkeypatch.setenv(name, value)
    made = DriverSettings(cdi_dir=tmp_path).for_driver(DRIVER)
    assert (made.node_name, made.rolling_update) == ("n", "u")
    assert driver_paths(made, DRIVER).service_socket == Path("/p/gpu.vendor.com/dra-u.sock")
    assert (str(made.registrar_dir), made.cdi_dir) == ("/r", tmp_path)


class _ClosedClient:
    """A client that was closed during a request for a claim."""

    is_closing = True

    def __init__(self):
        self.requests = 0

    def attempt(self, method, path, body=None, *, query=None):
        if path.endswith("/resourceslices"):
            return {}
        self.requests += 1
        assert self.requests < 5, "more requests after the end"
        raise Unavailable("no response")

    def wait(self, seconds):
        return True


def test_closed_client_requests_a_claim_no_more():
    client = _ClosedClient()
    with pytest.raises(Unavailable):
        ResourceApi(client, DRIVER, "node-1").claim("default", "train")
    assert client.requests == 1
