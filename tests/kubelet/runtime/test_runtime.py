"""A real container runtime starts a container with the fragment."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devicemanager.core.ids import ResourceName
from devicemanager.core.runoptions import merge
from devicemanager.kubelet.runtime import cdi
from devicemanager.kubelet.runtime.oci import apply, render
from devicemanager.kubelet.wire.settings import settings_from_bytes
from devicemanager.plugin import typed
from protos import deviceplugin_v1beta1 as dp

SYSTEM = [path for path in ("/bin", "/lib", "/lib64", "/usr") if Path(path).exists()]
LOOK = """
echo "env $GPU $FROM_CDI"
stat -L -c 'node %n %F %t:%T' /dev/gpu0 /dev/from-cdi
echo written > /dev/gpu0 && echo "gpu0 takes it"
echo "zero $(head -c 2 /dev/from-cdi | od -An -tx1)"
cat /opt/vendor/driver
"""

Run = Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]


def base_config(script: str) -> dict[str, Any]:
    """A shell over the host's system directories, read-only."""
    namespaces = [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]
    linux: dict[str, Any] = {"namespaces": namespaces}
    if os.geteuid():
        namespaces.append({"type": "user"})
        for key, number in (("uidMappings", os.geteuid()), ("gidMappings", os.getegid())):
            linux[key] = [{"containerID": 0, "hostID": number, "size": 1}]
    system = [
        {"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]}
        for path in SYSTEM
    ]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": ["/bin/sh", "-c", script],
            "env": ["PATH=/usr/bin:/bin", "LC_ALL=C"],
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            *system,
        ],
        "linux": linux,
    }


@pytest.fixture(params=["crun", "runc"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a configuration in a container; skip where that is not possible."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not installed")

    def start(config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        bundle = tmp_path / "bundle"
        (bundle / "rootfs").mkdir(parents=True, exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(config))
        name = f"dm-{os.getpid()}-{request.param}"
        return subprocess.run(
            [program, "--root", str(tmp_path / "state"), "run", "--bundle", str(bundle), name],
            capture_output=True,
            text=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )

    probe = start(base_config("echo works"))
    if probe.stdout != "works\n":
        pytest.skip(f"{request.param} starts no container here: {probe.stderr.strip()!r}")
    return start


def test_container_sees_its_devices_environment_and_mounts(run: Run, tmp_path: Path) -> None:
    response = dp.ContainerAllocateResponse(envs={"GPU": "zero"})
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor/driver").write_text("driver of the host\n")
    response.mounts.add(
        container_path="/opt/vendor", host_path=str(tmp_path / "vendor"), read_only=True
    )
    response.cdi_devices.add(name="vendor.com/gpu=0")
    typed.add_typed_devices(
        response, [typed.FlatDevice(identifier_container="/dev/gpu0", identifier_host="/dev/null")]
    )
    (tmp_path / "cdi").mkdir()
    edits = {
        "env": ["FROM_CDI=yes"],
        "deviceNodes": [{"path": "/dev/from-cdi", "hostPath": "/dev/zero"}],
    }
    specification = {
        "cdiVersion": "0.6.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": "0", "containerEdits": edits}],
    }
    (tmp_path / "cdi/gpu.json").write_text(json.dumps(specification))

    settings = settings_from_bytes(response.SerializeToString())
    options = merge({ResourceName("vendor.com/gpu"): settings})
    fragment = render(options, cdi.load([tmp_path / "cdi"]))
    assert fragment.conflicts == ()
    done = run(apply(base_config(LOOK), fragment.config))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "env zero yes",
        "node /dev/gpu0 character special file 1:3",
        "node /dev/from-cdi character special file 1:5",
        "gpu0 takes it",
        "zero  00 00",
        "driver of the host",
    ]


def test_container_sees_none_of_them_without_the_fragment(run: Run) -> None:
    done = run(base_config("echo env $GPU; ls /dev/gpu0 /opt/vendor 2>/dev/null; true"))
    assert done.stdout == "env\n"
