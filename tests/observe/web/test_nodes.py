"""One server for the kubelets of many nodes."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devicemanager import ManualClock, Settings
from devicemanager.core.podstatus.containers import ContainerStatus, Running, Terminated, Waiting
from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
from devicemanager.observe.web.nodes import NodesServer, log_lines, previous_lines
from devicemanager.testing import pod_manifest
from tests.observe.web.conftest import fetch

GPU = "vendor.com/gpu"


@pytest.fixture
def nodes():
    """Two in-memory nodes; a pod runs on the second."""
    made = {
        name: InMemoryKubelet(Settings(node_name=name), {GPU: 2}, clock=ManualClock(1000.0))
        for name in ("a", "b")
    }
    made["b"].admit(pod_manifest("train", {GPU: 1}, uid="train"))
    yield made
    for each in made.values():
        each.close()


@pytest.fixture
def get(nodes):
    with NodesServer("127.0.0.1:0", lambda: nodes) as server:
        yield lambda path, **headers: fetch(server.address, path, headers)
    assert server.address is None


def test_nodes_server_serves_each_node_under_its_name(get, nodes):
    (pod,) = get("/nodes/b/pods").json()["items"]
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("b", "Running")
    assert get("/nodes/a/pods").json()["items"] == []
    assert "kubeletconfig" in get("/nodes/a/configz").json()
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for path in ("/nodes/b/metrics", "/nodes/b/metrics/resource")
        for family in text_string_to_metric_families(get(path).text)
        for sample in family.samples
    }
    assert values["kubelet_node_name", "b"] == values["kubelet_running_pods",] == 1
    assert values["devicemanager_devices_held", GPU] == 1
    assert values["container_start_time_seconds", "main", "default", "train"] == 1000
    nodes["b"].stop()
    assert get("/nodes/b/healthz").status == 500
    assert get("/nodes/a/readyz?verbose").text.endswith("[+]syncloop ok\nreadyz check passed\n")
    assert {get(path).text for path in ("/healthz", "/nodes/b/livez")} == {"ok"}
    assert (get("/nodes/c/pods").status, get("/nodes/c/pods").text) == (
        404,
        "unknown node 'c'\n",
    )
    assert get("/healthz", Host="evil.example").status == 403


def test_container_logs_show_starts_and_exits(get, nodes):
    log = "/containerLogs/default/train/main"
    assert get(log).text == "1970-01-01T00:16:40Z container main started\n"
    assert get(log + "?previous=true").status == 400
    nodes["b"].exit_container("train", "main", 3)
    assert get(log).text == "1970-01-01T00:16:40Z container main started, restart 1\n"
    before = get(log + "?previous=true").text.splitlines()
    assert before == [
        "1970-01-01T00:16:40Z container main started",
        "1970-01-01T00:16:40Z container main ended: exit code 3, Error",
    ]
    assert get(log + "?previous=true&tailLines=1").text.splitlines() == before[1:]
    assert get(log + "?previous=true&tailLines=0").text == ""
    for path, text in (
        ("default/gone/main", "pod 'default/gone' does not exist\n"),
        ("default/train/x", "container 'x' not found in pod 'default/train'\n"),
    ):
        missing = get(f"/containerLogs/{path}")
        assert (missing.status, missing.text) == (404, text)


@pytest.mark.parametrize(
    ("status", "lines", "previous"),
    [
        (ContainerStatus("c", Waiting("ContainerCreating")), [], []),
        (ContainerStatus("c", Running()), ["- container c started"], []),
        (
            ContainerStatus("c", Terminated(1, "Error"), restart_count=2),
            [
                "- container c started, restart 2",
                "- container c ended: exit code 1, Error",
            ],
            [],
        ),
        (
            ContainerStatus("c", Waiting("CrashLoopBackOff"), Terminated(1, "Error")),
            ["- container c started", "- container c ended: exit code 1, Error"],
            ["- container c started", "- container c ended: exit code 1, Error"],
        ),
    ],
)
def test_container_log_depends_on_state(status, lines, previous):
    assert log_lines(status) == lines
    assert previous_lines(status) == previous


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_nodes_server_serves_tls(nodes, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=node"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    trusted = ssl.create_default_context(cafile=certificate)
    with (
        NodesServer("127.0.0.1:0", lambda: nodes, certfile=certificate, keyfile=key) as server,
        urllib.request.urlopen(f"https://{server.address}/healthz", context=trusted) as answer,
    ):
        assert answer.read() == b"ok"
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", key, "-out", locked, "-aes256", "-passout", "pass:x"]
    subprocess.run(command, check=True, capture_output=True)
    # An encrypted key is valid: OpenSSL asks for its password when the server starts.
    NodesServer("127.0.0.1:0", dict, certfile=certificate, keyfile=locked)
    other = tmp_path / "other.pem"
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", other],
        check=True,
        capture_output=True,
    )
    with pytest.raises(ValueError, match=f"^{certificate} and {other} are not a certificate and"):
        NodesServer("127.0.0.1:0", dict, certfile=certificate, keyfile=other)


def test_nodes_server_rejects_invalid_address_and_certificate(tmp_path):
    with pytest.raises(ValueError, match=r"^TLS needs both a certificate and its key"):
        NodesServer("127.0.0.1:0", dict, certfile=tmp_path / "c")
    with pytest.raises(
        ValueError,
        match=r"^other hosts can reach 0\.0\.0\.0:0, and traffic is not "
        r"encrypted: use 127\.0\.0\.1",
    ):
        NodesServer("0.0.0.0:0", dict)
    missing = tmp_path / "c"
    with pytest.raises(ValueError, match=f"^{missing}: No such file or directory$"):
        NodesServer("127.0.0.1:0", dict, certfile=missing, keyfile=missing)
    other = tmp_path / "text"
    other.write_text("hello")
    error = f"^{other} and {other} are not a certificate and its key in PEM format$"
    with pytest.raises(ValueError, match="^" + error):
        NodesServer("127.0.0.1:0", dict, certfile=other, keyfile=other)


@pytest.mark.parametrize("name", ["attach", "run"])
def test_requests_that_need_a_running_container_are_refused(get, name):
    answer = get(f"/{name}/default/train/main?command=ls")
    assert answer.status == 501
    assert answer.text == f"{name} is not available: containers of virtual nodes do not run\n"


def test_refusals_do_not_depend_on_the_host(get):
    """For port-forward, the API server passes on the header Host of kubectl."""
    host = "kubernetes.example.com:6443"
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    assert get("/portForward/default/train", Host=host, **upgrade).status == 501
    assert get("/nodes/a/pods", Host=host, **upgrade).status == 403


@pytest.mark.parametrize("path", ["exec/default/x/c", "portForward/default/x", "attach/x", "run/x"])
def test_page_of_another_site_cannot_ask_for_pods(get, path):
    """A page cannot send the header Upgrade."""
    assert get(f"/{path}", Host="evil.example").status == 403
    assert get(f"/{path}").status in (404, 501)
