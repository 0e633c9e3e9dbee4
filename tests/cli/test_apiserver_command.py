"""``devicemanager apiserver``: a server as a process, with its files, faults and request lines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devicemanager.cli import main
from tests.cli.test_dra_objects import CLAIM, SLICE

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield the process and its first line."""
    command = [sys.executable, "-m", "devicemanager", "apiserver", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_server_prints_requests_and_applies_faults(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(f"{SLICE}---\n{CLAIM}")
    options = ("--file", str(tmp_path), "--node", "n", "--fail", "409:list:resourceslices:1")
    with serving(*options, "--kubeconfig", str(tmp_path / "config")) as (process, line):
        url = line.split()[1]
        assert json.loads((tmp_path / "config").read_text())["clusters"][0]["cluster"] == {
            "server": url
        }
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{url}{SLICES}")
        assert caught.value.code == 409
        caught.value.close()
        with urllib.request.urlopen(f"{url}{SLICES}") as response:
            assert [each["metadata"]["name"] for each in json.load(response)["items"]] == ["s"]
        with urllib.request.urlopen(
            f"{url}{SLICES.replace('resourceslices', 'namespaces/default/resourceclaims/c')}"
        ) as response:
            assert json.load(response)["status"]["reservedFor"][0]["name"] == "p"
        assert process.stdout is not None
        assert process.stdout.readline() == f"409 GET {SLICES}\n"
        assert process.stdout.readline() == f"200 GET {SLICES}\n"


def test_in_cluster_mode_prints_the_environment(tmp_path: Path) -> None:
    directory = tmp_path / "account"
    with serving("--in-cluster", str(directory), "-o", "json") as (_, line):
        found = json.loads(line)
        environment = found["environment"]
        assert environment["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
        assert found["url"] == f"https://127.0.0.1:{environment['KUBERNETES_SERVICE_PORT']}"
        assert {each.name for each in directory.iterdir()} == {"ca.crt", "namespace", "token"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--port", "99999"), "invalid port '99999': use a number up to 65535"),
        (("--fail", "200"), "invalid failure '200': use CODE"),
        (("--fail", "409:get:b:c"), "invalid TIMES 'c': use a whole number"),
        (("--fail", "409:updat"), "invalid verb 'updat': use one of get, list,"),
        (("--hide", "resource.k8s.io/v7"), "--hide: unknown version 'resource.k8s.io/v7': use "),
        (("--feature-gate", "X"), "unknown feature gate 'X'"),
        (("--file", "/nosuch"), "No such file or directory"),
        (("--fail", "409:list:resourceslice"), "--fail: unknown resource 'resourceslice': use one"),
        (("--node", "No_de"), "invalid node name 'No_de': use lower-case letters, digits, - and ."),
    ],
)
def test_wrong_options_are_one_line(options: tuple[str, ...], error: str, capsys: object) -> None:
    assert main(["apiserver", *options]) == 2
    assert re.search(re.escape(error), capsys.readouterr().err)  # type: ignore[attr-defined]


def test_invalid_object_is_one_line(tmp_path: Path, capsys: object) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(SLICE.replace("driver: gpu.example.com", "driver: ''"))
    assert main(["apiserver", "--file", str(path)]) == 2
    error = capsys.readouterr().err  # type: ignore[attr-defined]
    assert error.startswith(f"devicemanager: error: {path}: ")
    assert "spec.driver: Required value" in error and error.count("\n") == 1
