"""Stages for checks of drivers: a mock kubelet, an API server, and the driver under test."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from devicemanager.apiserver import FakeApiServer, InCluster
from devicemanager.apiserver.in_cluster import DIRECTORY as SERVICE_ACCOUNT
from devicemanager.conformance.drivers.driver_under_test import VARIABLES, DriverUnderTest
from devicemanager.conformance.drivers.limits import DriverLimits
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.running_plugin import RunningPlugin
from devicemanager.conformance.stage import Stage
from devicemanager.io.temporary import short_directory
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from devicemanager.plugin.processes.namespace import Bind, node_binds
from devicemanager.testing.processes import PluginProcess

if TYPE_CHECKING:
    from devicemanager.kubelet.nri import NriRuntime

__all__ = ["NODE", "POD_UIDS", "DriverStage", "RunningDriver"]

NODE: Final = "node-1"
POD_UIDS: Final = ("8d53fa82-7b6e-4a0b-b1d5-0d2b7c3f5a01", "8d53fa82-7b6e-4a0b-b1d5-0d2b7c3f5a02")
"""UIDs of the driver's pod, and of the pod that replaces it in a rolling update."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CDI_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
_KUBELET = Path("/var/lib/kubelet")
_NRI = Path("/var/run/nri")
_OF_HOST = ("/proc", "/sys", "/dev")
"""Directories that each container has."""


class DriverStage(Stage):
    """Mock kubelet and API server in temporary directories, and the driver that uses them."""

    api: FakeApiServer
    limits: DriverLimits

    def _new_kubelet(self, plugin: PluginUnderTest, settings: Settings) -> MockKubelet:
        assert isinstance(plugin, DriverUnderTest)
        # The base class creates the kubelet first. Everything that the kubelet needs is created
        # here. The directory is short, because it also has the socket of the NRI runtime.
        self.directory = short_directory()
        """Directory with all files of the stage that are not in the kubelet's directory."""
        self.cdi_dir = self.directory / "cdi"
        self.other_cdi_dir = self.directory / "etc-cdi"
        # Two directories, as on a node: the files in /etc/cdi survive a reboot (DK12).
        for each in (self.cdi_dir, self.other_cdi_dir):
            each.mkdir()
        self.in_cluster: InCluster | None = None
        # The certificate needs openssl, and a driver finds these files only at their fixed paths.
        if plugin.is_private:
            self.in_cluster = InCluster.create(self.directory / "serviceaccount")
        self.boot_id = self.directory / "boot_id"
        self.new_boot_id()
        self.serve_api()
        settings = attrs.evolve(settings, kubeconfig=self.kubeconfig, node_name=NODE)
        self.nri = self._nri_runtime() if plugin.nri else None
        """Mock runtime for drivers that are NRI plugins; None without the option ``nri``."""
        self.nri_report = ""
        """The latest line that ``nri`` has reported, such as the reason of a disconnection; empty
        before the first line."""
        return MockKubelet(settings=settings, runtime=self.nri)

    def _nri_runtime(self) -> NriRuntime:
        from devicemanager.kubelet.nri import NriRuntime

        directories = [self.other_cdi_dir, self.cdi_dir]
        path = self.directory / "nri" / "nri.sock"
        return NriRuntime(path, directories, report=self._note_nri).start()

    def _note_nri(self, line: str) -> None:
        self.nri_report = line

    def _new_plugin(self, plugin: PluginUnderTest) -> RunningPlugin:
        assert isinstance(plugin, DriverUnderTest)
        return RunningDriver(plugin, self)

    @property
    def kubeconfig(self) -> Path:
        """File with which the driver and the kubelet find the API server."""
        return self.directory / "kubeconfig"

    def serve_api(self, hidden: tuple[str, ...] = ()) -> None:
        """Start the API server, and create a Node object in it.

        ``hidden``: API versions that the server does not serve, such as ``resource.k8s.io/v1``.
        """
        self.api = FakeApiServer(in_cluster=self.in_cluster, hidden=hidden)
        self.api.start()
        # Without a Node, which is the owner of the slices, drivers publish no slices.
        self.api.create("nodes", {"metadata": {"name": NODE}})
        self.api.kubeconfig(self.kubeconfig)

    def new_boot_id(self) -> None:
        """Replace the boot ID of the stage by a new random one. With the option ``reboot``, the
        driver sees this ID instead of the machine's boot ID."""
        self.boot_id.write_text(f"{uuid.uuid4()}\n")

    def _clean_up(self) -> None:
        if self.nri is not None:
            self.nri.close()
        self.api.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class _Process(PluginProcess):
    """Plugin process with the mounts of a driver."""

    def __init__(
        self,
        kubelet: MockKubelet,
        command: Sequence[str],
        binds: tuple[Bind, ...],
        **options: Any,
    ) -> None:
        super().__init__(kubelet, command, **options)
        self._binds = binds


class RunningDriver(RunningPlugin):
    """Instances of the driver under test on one stage."""

    def __init__(self, under_test: DriverUnderTest, stage: DriverStage) -> None:
        super().__init__(under_test, stage.kubelet, stage.limits.grace_seconds)
        self._driver = under_test
        self._stage = stage
        self.pod_uid = POD_UIDS[0]
        """Pod UID of the instances that are started next."""
        self.runs_previous = False
        """True if the next start uses the command of ``--previous``, False if it uses the usual
        command."""

    def _new_process(self, command: list[str]) -> PluginProcess:
        driver, values = self._driver, self._values_of_placeholders()
        if self.runs_previous and driver.previous is not None:
            command = list(driver.previous)
        return _Process(
            self._stage.kubelet,
            [_filled(word, values) for word in command],
            self._binds(),
            # The user's variables come last, so they replace those of the suite.
            env={
                name: _filled(value, values)
                for name, value in {**VARIABLES, **self._in_cluster(), **driver.env}.items()
            },
            cwd=driver.cwd,
            restart=driver.restart,
        )

    def _values_of_placeholders(self) -> dict[str, str]:
        root = _KUBELET if self._driver.is_private else self._stage.kubelet.root
        cdi = _CDI_DIRECTORIES[1] if self._driver.is_private else self._stage.cdi_dir
        return {
            "kubeconfig": str(self._stage.kubeconfig),
            "node_name": NODE,
            "registrar_dir": str(root / "plugins_registry"),
            "plugins_dir": str(root / "plugins"),
            "cdi_dir": str(cdi),
            "pod_uid": self.pod_uid,
            "nri_socket": str(self._nri_socket),
            "root": str(root),
        }

    @property
    def _nri_socket(self) -> Path:
        nri = self._stage.nri
        return _NRI / "nri.sock" if nri is None or self._driver.is_private else nri.path

    def _in_cluster(self) -> dict[str, str]:
        return self._stage.api.environment if self._driver.is_private else {}

    def _binds(self) -> tuple[Bind, ...]:
        """Return the mounts of the driver's processes; empty if the driver needs no mounts."""
        stage, found = self._stage, list[Bind]()
        if self._driver.is_private:
            etc, run = _CDI_DIRECTORIES
            hardware = self._driver.hardware
            found += [
                *self._root_binds(),
                *node_binds(stage.kubelet.root, dev=hardware.dev, sys=hardware.sys),
                Bind(stage.other_cdi_dir, etc),
                Bind(stage.cdi_dir, run),
                Bind(stage.directory / "serviceaccount", Path(SERVICE_ACCOUNT)),
            ]
        if stage.nri is not None and self._driver.is_private:
            found.append(Bind(stage.nri.path.parent, _NRI))
        if self._driver.reboot:
            found.append(Bind(stage.boot_id, _BOOT_ID))
        return tuple(found)

    def _root_binds(self) -> list[Bind]:
        """Return the mounts of a driver that runs in the file system of its container image."""
        rootfs = self._driver.rootfs
        if rootfs is None:
            return []
        # The command may name files in the stage's directory, such as the kubeconfig.
        same = [Path(each) for each in _OF_HOST]
        return [
            Bind(rootfs, Path("/")),
            *(Bind(each, each) for each in (*same, self._stage.directory)),
        ]


def _filled(text: str, values: Mapping[str, str]) -> str:
    # Not ``str.format``: other words in braces may have a meaning for the driver.
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
