"""A plugin in Rust, on tonic, with the mock kubelet.

Its HTTP/2 library (h2) rejects calls with an invalid ``:authority``, such as a quoted path.
"""

import shutil
import subprocess

import pytest

from devicemanager import MockKubelet
from devicemanager.testing import pod_manifest
from tests.interop import builds, rustbuild

GPU = "vendor.com/gpu"
TIMEOUT = 15


@pytest.fixture
def kubelet(node_dir):
    with MockKubelet(node_dir) as running:
        yield running


@pytest.fixture
def plugin(spawn, tonic_plugin, kubelet):
    """Function that starts the plugin and waits for its two devices."""

    def start(*flags):
        process = spawn(tonic_plugin, "-dir", kubelet.plugin_dir, *flags)
        process.wait_for("registered", unless="register-failed")
        kubelet.wait_for_resource(GPU, 2, timeout=TIMEOUT)
        return process

    return start


def test_sources_are_formatted():
    rustfmt = shutil.which("rustfmt")
    if rustfmt is None:
        pytest.skip("rustfmt is not installed")
    files = [rustbuild.SOURCES / "build.rs", *(rustbuild.SOURCES / "src").glob("*.rs")]
    done = subprocess.run(
        [rustfmt, "--check", "--edition", "2021", *files], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_every_call_arrives(kubelet, plugin):
    peer = plugin("-prestart", "-preferred")
    admission = kubelet.admit(pod_manifest("a", {GPU: 1}))
    assert admission.containers["main"].devices == {GPU: ["gpu-1"]}
    assert peer.wait_for("prefer")["available"] == ["gpu-0", "gpu-1"]
    assert peer.wait_for("allocate")["ids"] == ["gpu-1"]
    assert peer.wait_for("prestart")["ids"] == ["gpu-1"]
    options = admission.containers["main"].run_options
    assert dict(options.envs) == {"GPU_DEVICES": "gpu-1"}
    assert [each.container_path for each in options.devices] == ["/dev/gpu-1"]
    assert [each.container_path for each in options.mounts] == ["/opt/gpu"]


def test_changes_restarts_and_exit(kubelet, plugin):
    peer = plugin()
    peer.send("health", "gpu-0", "Unhealthy")
    kubelet.wait_for_resource(GPU, 1, timeout=TIMEOUT)
    for _ in range(2):
        kubelet.restart()
        peer.forget()
        peer.call("restart", reply="registered")
        kubelet.wait_for_resource(GPU, 1, timeout=TIMEOUT)
    assert peer.finish() == 0
    kubelet.wait_for_resource(GPU, 0, timeout=TIMEOUT)
    assert kubelet.capacity()[GPU] == 2


def test_rejection_has_text_of_kubelet(spawn, tonic_plugin, kubelet):
    peer = spawn(tonic_plugin, "-dir", kubelet.plugin_dir, "-resource", "gpu")
    rejected = peer.wait_for("register-failed")
    assert 'the ResourceName \\"gpu\\" is invalid' in rejected["error"]


def test_missing_cargo_is_unavailable(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(builds, "CACHE", tmp_path)
    with pytest.raises(builds.Unavailable, match="cargo is not installed"):
        rustbuild.build()


@pytest.mark.parametrize(
    "line",
    [
        "error: failed to get `prost` as a dependency of package `tonicplugin v0.0.0 (/tmp/t)`",
        "error: no matching package named `prost` found",
        "error: rustc 1.80.0 is not supported by the following packages:",
        "error: rustup could not choose a version of cargo to run",
    ],
)
def test_missing_crates_are_unavailable(line):
    reason = rustbuild.explain(f"    Updating index\n{line}\n")
    assert isinstance(reason, builds.Unavailable)
    assert str(reason) == line


def test_compile_error_is_failed_build():
    stderr = "error[E0425]: cannot find value `x` in this scope\n --> src/main.rs:3:5\n"
    assert isinstance(rustbuild.explain(stderr), builds.BuildFailed)
