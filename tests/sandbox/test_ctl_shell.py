"""``run_in_container``, ``ctl shell`` and ``ctl oci`` with a plugin that mounts a library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devicemanager import MockKubelet, RequestError
from devicemanager.cli import main
from devicemanager.control import ControlServer
from devicemanager.plugin import ContainerSettings, Manager, Mount, Plugin, StaticLister
from devicemanager.testing import pod_manifest
from tests.sandbox.test_sandbox import BACKENDS, works

GPU = "vendor.com/gpu"
SCRIPT = "cat >/dev/null; echo linked > /tmp/root/tmp/ld.so.cache"

pytestmark = pytest.mark.skipif(not works(), reason="the machine allows no user namespaces")


class Gpus(Plugin):
    def __init__(self, library: Path) -> None:
        self.library = library

    def devices(self) -> list[str]:
        return ["0"]

    def allocate(self, device_ids: Any) -> ContainerSettings:
        return ContainerSettings(
            envs={"GPU": ",".join(device_ids)},
            mounts=[Mount(container_path="/usr/lib/vendor/libgpu.so", host_path=str(self.library))],
            devices=["/dev/null"],
            cdi_devices=["vendor.com/gpu=0"],
        )


@pytest.fixture
def cdi(tmp_path: Path) -> Path:
    """CDI files with a hook and a library mount."""
    directory = tmp_path / "cdi"
    directory.mkdir()
    hook = {"hookName": "createContainer", "path": "/bin/sh", "args": ["sh", "-c", SCRIPT]}
    mount = {"hostPath": str(directory), "containerPath": "/opt/vendor", "options": ["ro", "bind"]}
    edits = {"env": ["CDI=yes"], "hooks": [hook], "mounts": [mount]}
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": "0", "containerEdits": edits}],
    }
    (directory / "vendor.json").write_text(json.dumps(spec))
    return directory


@pytest.fixture
def kubelet(mock_kubelet: MockKubelet, tmp_path: Path) -> Iterator[MockKubelet]:
    library = tmp_path / "libgpu.so"
    library.write_text("the library\n")
    with Manager(StaticLister("vendor.com", {"gpu": Gpus(library)}), mock_kubelet.plugin_dir):
        mock_kubelet.wait_for_resource(GPU, 1)
        assert mock_kubelet.admit(pod_manifest("train", {GPU: 1}, uid="u-train")).admitted
        yield mock_kubelet


TEXT = "echo $GPU $CDI; cat /usr/lib/vendor/libgpu.so /tmp/ld.so.cache; ls /opt/vendor; exit 3"
SEEN = "0 yes\nthe library\nlinked\nvendor.json\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_command_sees_what_the_plugin_and_cdi_gave(
    kubelet: MockKubelet, cdi: Path, backend: str
) -> None:
    words = ["/bin/sh", "-c", TEXT]
    done = kubelet.run_in_container("u-train", "main", words, backend=backend, cdi=cdi)
    assert (done.returncode, done.stdout, done.stderr) == (3, SEEN, "")


def test_settings_are_those_of_the_last_start(kubelet: MockKubelet) -> None:
    assert kubelet.container_options("u-train", "main").envs == {"GPU": "0"}
    kubelet.admit(pod_manifest("idle", {}, uid="u-idle"), start=False)
    with pytest.raises(RequestError, match=r"container main of pod .* was not started"):
        kubelet.container_options("u-idle", "main")
    kubelet.start_pod("u-idle")
    assert kubelet.container_options("u-idle", "main").envs == {}


def test_ctl_shell_and_oci(
    kubelet: MockKubelet, cdi: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path
) -> None:
    with ControlServer(kubelet):
        monkeypatch.setenv("DEVICEMANAGER_CONTROL", str(kubelet.root))
        common = ["train", "--cdi", str(cdi)]
        words = ["ctl", "shell", *common, "-c", "main", "--backend", "namespaces"]
        assert main([*words, "--", "/bin/sh", "-c", TEXT]) == 3
        assert capfd.readouterr() == (SEEN, "")
        assert main(["ctl", "oci", *common]) == 0
        printed = json.loads(capfd.readouterr().out)
        assert printed["process"]["args"] == ["/bin/sh"]
        assert "GPU=0" in printed["process"]["env"]
        assert main(["ctl", "oci", *common, "-o", str(tmp_path / "bundle")]) == 0
        assert json.loads((tmp_path / "bundle/config.json").read_text()) == printed
        capfd.readouterr()
        assert main(["ctl", "oci", *common, "-o", str(tmp_path / "bundle")]) == 2
        assert "exists: use another directory" in capfd.readouterr().err
        assert main(["ctl", "shell", "train", "--rootfs", str(tmp_path / "no")]) == 2
        assert "is not a directory" in capfd.readouterr().err
        # Without the CDI files of the plugin, the error names the device.
        assert main(["ctl", "shell", "train", "--cdi", str(tmp_path)]) == 2
        assert "vendor.com/gpu=0" in capfd.readouterr().err
