"""``devicemanager run --api-server`` and ``--kubeconfig``."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from devicemanager.apiserver import FakeApiServer
from devicemanager.cli import api_server_option, main
from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load
from devicemanager.control import MockKubeletClient
from devicemanager.testing import claim_spec, pod_inline
from tests.cli.records import until_ready

RUN = [sys.executable, "-m", "devicemanager.cli", "run", "-o", "json"]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gpu.example.com"


@contextlib.contextmanager
def running(*flags):
    """Run a kubelet, and yield what it printed and its process."""
    with subprocess.Popen([*RUN, *flags], stdout=subprocess.PIPE, text=True) as run:
        try:
            yield {record["kind"]: record for record in until_ready(run)}, run
        finally:
            run.terminate()
            assert run.wait(30) == 0
            run.stdout.read()


def test_pod_of_the_api_server_runs_with_its_claim():
    flags = ("--api-server", "--simulate-driver", f"{DRIVER}=2", "--control")
    with running(*flags, "--durability", "process") as (said, run):
        path = Path(said["kubeconfig"]["path"])
        assert (
            json.loads(path.read_text())["clusters"][0]["cluster"]["server"]
            == (said["api-server"]["url"])
        )
        client = ApiClient(load(path))
        pod, template = pod_inline(spec=claim_spec(count=2))
        group = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
        client.attempt("POST", group, template)
        client.attempt("POST", "/api/v1/namespaces/default/pods", pod)
        kinds = iter(json.loads(line)["kind"] for line in run.stdout)
        assert "container-started" in kinds
        (slices,) = client.attempt("GET", SLICES)["items"]
        assert [each["name"] for each in slices["spec"]["devices"]] == ["gpu-0", "gpu-1"]
        client.attempt("DELETE", "/api/v1/namespaces/default/pods/tester")
        assert "claims-unprepared" in kinds
        client.close()
        # The start of a kubelet deletes the slices of its node; the driver publishes them again.
        kubelet = MockKubeletClient(said["control-socket"]["path"])
        mark = kubelet.mark()
        kubelet.restart()
        kubelet.wait_for_event("slices-wiped", text="deleted", since=mark)
        client = ApiClient(load(path))
        kubelet.wait_for(lambda: bool(client.attempt("GET", SLICES)["items"]))
        client.close()
    assert not path.exists()


def test_claims_are_those_of_the_kubeconfig(tmp_path):
    with FakeApiServer() as server:
        server.load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mock"}})
        config = str(server.kubeconfig(tmp_path / "config"))
        with running("--kubeconfig", config, "--durability", "process"):
            # The kubelet deletes slices beside its start.
            assert server.log.wait_for(verb="deletecollection", resource="resourceslices")


def test_flags_exclude_each_other(capsys):
    assert main(["run", "--api-server", "--kubeconfig", "x"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_missing_extra_is_a_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(api_server_option, "_CEL", ("sys", "no_such_module"))
    warned = []
    log = SimpleNamespace(say=lambda *_, **__: None, warn=lambda *words: warned.append(words))
    node = SimpleNamespace(server=SimpleNamespace(url="http://x"))
    api_server_option.report(node, tmp_path, log)
    [(kind, text)] = warned
    assert kind == "cel-unavailable"
    assert text.endswith(
        "no_such_module is not installed: pip install 'kubelet-devicemanager[claims]'"
    )
