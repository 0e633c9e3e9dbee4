"""``devicemanager simulate`` as users run it: its actions and its errors."""

import os
import subprocess

import pytest
import yaml

from tests.plugin.stubkubelet import TIMEOUT

GPU = "vendor.com/gpu"


@pytest.fixture
def run(script, tmp_path):
    """Function that runs the command to its end, in an environment without a cluster."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def run_to_end(*words, **variables):
        return subprocess.run(
            [script, "simulate", *words],
            env=environment | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=50,
        )

    return run_to_end


def test_simulate_serves_until_sigterm(script, kubelet):
    variables = {
        "DEVICE_PLUGIN_DIRECTORY": str(kubelet.directory),
        "RESOURCE_NAME": GPU,
        "NODE_NAME": "n",
    }
    command = [script, "simulate", "--number-devices", "1", "--device-id-prefix", "gpu"]
    with subprocess.Popen(command, env=os.environ | variables) as process:
        try:
            for _ in range(2):
                kubelet.wait_devices({"gpu-n-0": "Healthy"}, GPU)
                kubelet.restart()
            process.terminate()
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()
    assert [entry.name for entry in kubelet.directory.iterdir()] == ["kubelet.sock"]


def test_manifest_is_printed_for_kubectl(run):
    done = run("manifest", "--image", "registry.example.com/p:1", NUMBER_DEVICES="8")
    assert (done.returncode, done.stderr) == (0, "")
    namespace, daemon_set = yaml.safe_load_all(done.stdout)
    assert (namespace["kind"], daemon_set["kind"]) == ("Namespace", "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/p:1"
    assert {"name": "NUMBER_DEVICES", "value": "8"} in container["env"]


@pytest.mark.parametrize(
    ("words", "variables", "text"),
    [
        ([], {"NUMBER_DEVICES": "two"}, "must be a whole number from 0 to 100000, not 'two'"),
        (["--number-devices", "two"], {}, "NUMBER_DEVICES (--number-devices) must be a whole"),
        ([], {"RESOURCE_NAME": "gpu"}, "invalid resource name 'gpu': it has no domain"),
        (["--directory", "/none/device-plugins"], {}, "device-plugins does not exist: set the"),
        ([], {"DEVICE_PLUGIN_DIRECTORY": "/dev/null"}, "/dev/null is not a directory: set the"),
        (
            ["--directory", f"/tmp/{'x' * 100}"],
            {},
            "have at most 107 bytes: choose a short",
        ),
        (["deploy"], {}, "no cluster is configured"),
        (["undeploy"], {"KUBECONFIG": "/dev/null"}, "/dev/null, which is not a valid kubeconfig"),
        (
            ["manifest"],
            {"NAMESPACE": "My_Space"},
            "NAMESPACE (--namespace) becomes the name of an object in Kubernetes: use at",
        ),
        (
            ["manifest"],
            {"PLUGIN_NAME": "x" * 64},
            "(--plugin-name) becomes the name of an object in Kubernetes: use at",
        ),
    ],
)
def test_mistake_is_a_one_line_error(run, words, variables, text):
    done = run(*words, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("devicemanager simulate: error: ") and text in line


def test_unknown_action_prints_the_usage(run):
    done = run("frobnicate")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "usage: devicemanager simulate [run|manifest|deploy|undeploy] [options]"
    )


def test_missing_kubelet_is_logged(script, directory):
    missing = directory / "device-plugins"
    command = [script, "simulate", "--directory", missing]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        process.terminate()
        assert process.wait(TIMEOUT) == 0
    assert line.endswith(f"waiting for a kubelet: there is no {missing}/kubelet.sock\n")
