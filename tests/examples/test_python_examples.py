"""The programs in ``examples/python``, run as their users run them."""

import os
import sys

import pytest

from tests.paths import ROOT
from tests.sessions import NO_SUITE_PLUGINS, run_python

EXAMPLES = ROOT / "examples/python"
GPU = "vendor.com/gpu"
SIMULATED = [sys.executable, "-m", "devicemanager.plugin.simulated", "--resource-name", GPU]


@pytest.mark.parametrize("module", sorted(EXAMPLES.glob("test_*.py")), ids=lambda path: path.stem)
def test_example_tests_pass(module, tmp_path):
    done = run_python(
        "-m",
        "pytest",
        "-q",
        "-Werror",
        *NO_SUITE_PLUGINS,
        "--rootdir",
        tmp_path,
        "-c",
        os.devnull,
        module,
    )
    assert done.returncode == 0, done.stdout


def test_example_tests_fail_with_plugin_that_exits():
    select = ["-k", "pod_gets_a_device", "-c", os.devnull]
    module = EXAMPLES / "test_plugin_command.py"
    done = run_python(
        "-m", "pytest", "-q", *NO_SUITE_PLUGINS, *select, module, PLUGIN="sh -c 'exit 3'"
    )
    assert done.returncode == 1
    assert "sh exited with status 3" in done.stdout


def test_admit_pods_prints_settings_and_rejections():
    train, greedy = ROOT / "examples/1-train.yaml", ROOT / "examples/4-greedy.yaml"
    done = run_python(EXAMPLES / "admit_pods.py", train, greedy)
    assert done.stdout.splitlines() == [
        f"{train}: container main has gpu-node-0, gpu-node-1 of vendor.com/gpu",
        "  variable GPU_0=/dev/0",
        "  variable GPU_1=/dev/1",
        "  device node /dev/gpu-0 (rw)",
        "  device node /dev/gpu-1 (rw)",
        f"{greedy}: rejected, UnexpectedAdmissionError: Allocate failed due to requested number of "
        "devices unavailable for vendor.com/gpu. Requested: 8, Available: 2, which is unexpected",
    ]


def test_list_devices_prints_line_per_container(pod_resources_server):
    device = {"resource_name": GPU, "device_ids": ["gpu-0", "gpu-1"]}
    pod = {
        "name": "train",
        "namespace": "ml",
        "containers": [{"name": "main", "devices": [device]}],
    }
    server = pod_resources_server({"pod_resources": [pod]})
    done = run_python(EXAMPLES / "list_devices.py", server.socket_path)
    assert done.stdout == "ml/train main vendor.com/gpu: gpu-0 gpu-1\n"
    missing = run_python(EXAMPLES / "list_devices.py", "/nowhere")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_inject_faults_passes_with_good_plugin():
    done = run_python(EXAMPLES / "inject_faults.py", GPU, *SIMULATED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line[:5] for line in done.stdout.splitlines()] == ["ok   "] * 4


def test_readme_lists_every_program():
    text = (ROOT / "examples/README.md").read_text()
    programs = [*EXAMPLES.glob("*.py"), ROOT / "examples/go/devices.go"]
    assert [path.name for path in programs if f"({path.parent.name}/{path.name})" not in text] == []
