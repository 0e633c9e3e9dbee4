"""Deployment to a cluster, with a minimal API server."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from devicemanager.plugin.simulated import simulate_main

NAMESPACES = "/api/v1/namespaces"
SETS = "/apis/apps/v1/namespaces/{}/daemonsets"


class ApiServer(ThreadingHTTPServer):
    """Namespaces and DaemonSets by path. ``reject`` maps (method, path) to a status."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = {}
        self.reject = {}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = f"{self.path}/{body['metadata']['name']}"
        if path in self.server.objects:
            return self.respond(409, f'"{body["metadata"]["name"]}" already exists')
        return self.respond(201, lambda: self.server.objects.setdefault(path, body))

    def do_GET(self):
        if self.path in self.server.objects:
            return self.respond(200, lambda: self.server.objects[self.path])
        items = [o for p, o in self.server.objects.items() if p.rpartition("/")[0] == self.path]
        return self.respond(200, lambda: {"items": items})

    def do_DELETE(self):
        if self.path not in self.server.objects:
            return self.respond(404, "not found")
        return self.respond(200, lambda: self.server.objects.pop(self.path))

    def respond(self, status, content):
        rejected = self.server.reject.get((self.command, self.path))
        if rejected:
            status, content = rejected, "daemonsets is forbidden: User may not"
        if isinstance(content, str):
            content = {"kind": "Status", "status": "Failure", "message": content, "code": status}
        else:
            content = content()
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    configure(tmp_path, monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def configure(tmp_path, monkeypatch, url):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))


FLAGS = ["--namespace", "ns", "--plugin-name", "p", "--number-devices", "8"]


def simulate(capsys, action, *flags):
    code = simulate_main([action, *FLAGS, *flags])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_undeploy_removes_what_deploy_created(cluster, capsys):
    code, text = simulate(capsys, "deploy", "--image", "registry.example.com/p:1")
    assert (code, text) == (0, "DaemonSet ns/p created\n")
    made = cluster.objects[f"{SETS.format('ns')}/p"]
    simulate_main(["manifest", *FLAGS, "--image", "registry.example.com/p:1"])
    namespace, daemon_set = yaml.safe_load_all(capsys.readouterr().out)
    assert made == daemon_set
    assert cluster.objects[f"{NAMESPACES}/ns"] == namespace
    assert simulate(capsys, "undeploy") == (0, "DaemonSet ns/p removed, and its namespace\n")
    assert cluster.objects == {}


def test_installed_command_undeploys(cluster, script, capsys):
    simulate(capsys, "deploy")
    command = [script, "simulate", "undeploy", *FLAGS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "DaemonSet ns/p removed, and its namespace\n"
    assert cluster.objects == {}


def test_existing_namespace_is_used_and_stays(cluster, capsys):
    cluster.objects[f"{NAMESPACES}/ns"] = {"metadata": {"name": "ns"}}
    assert simulate(capsys, "deploy")[0] == 0
    assert simulate(capsys, "undeploy") == (0, "DaemonSet ns/p removed\n")
    assert list(cluster.objects) == [f"{NAMESPACES}/ns"]


def test_namespace_of_another_plugin_stays(cluster, capsys):
    simulate(capsys, "deploy")
    simulate(capsys, "deploy", "--plugin-name", "q")
    assert simulate(capsys, "undeploy") == (0, "DaemonSet ns/p removed\n")
    assert simulate(capsys, "undeploy", "--plugin-name", "q") == (
        0,
        "DaemonSet ns/q removed, and its namespace\n",
    )


def test_deploy_rejects_an_existing_daemon_set(cluster, capsys):
    simulate(capsys, "deploy")
    before = dict(cluster.objects)
    assert simulate(capsys, "deploy") == (
        2,
        "devicemanager simulate: error: DaemonSet ns/p exists: undeploy it first, or use another "
        "PLUGIN_NAME\n",
    )
    assert cluster.objects == before


def test_undeploy_rejects_a_missing_daemon_set(cluster, capsys):
    assert simulate(capsys, "undeploy") == (
        2,
        "devicemanager simulate: error: DaemonSet ns/p does not exist: nothing removed\n",
    )


@pytest.mark.parametrize(
    ("action", "method", "path"),
    [
        ("deploy", "POST", NAMESPACES),
        ("deploy", "POST", SETS.format("ns")),
        ("undeploy", "DELETE", f"{SETS.format('ns')}/p"),
    ],
)
def test_rejection_by_the_cluster_is_a_one_line_error(cluster, capsys, action, method, path):
    if action == "undeploy":
        simulate(capsys, "deploy")
    cluster.reject[method, path] = 403
    assert simulate(capsys, action) == (
        2,
        f"devicemanager simulate: error: cannot {action} ns/p: the API server rejected the "
        "request: daemonsets is forbidden: User may not (403)\n",
    )


def test_no_cluster_at_the_address_is_a_one_line_error(tmp_path, monkeypatch, capsys):
    # A port on which no process listens any more.
    with ApiServer() as server:
        url = f"http://127.0.0.1:{server.server_port}"
    configure(tmp_path, monkeypatch, url)
    code, text = simulate(capsys, "deploy")
    assert code == 2
    assert text.startswith(
        f"devicemanager simulate: error: cannot deploy ns/p: no response from {url}: "
    )
    assert text.count("\n") == 1


@pytest.mark.parametrize("content", [None, "", "just text", "clusters: [", "a: b"])
def test_invalid_kubeconfig_is_a_one_line_error(tmp_path, monkeypatch, capsys, content):
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    code, text = simulate(capsys, "deploy")
    assert code == 2
    start = "devicemanager simulate: error: cannot deploy ns/p: KUBECONFIG is"
    assert text.startswith(f"{start} {path}, ")
    assert text.count("\n") == 1
    assert ("not a kubeconfig file" in text) == (content in ("", "just text"))


def test_kubeconfig_that_is_a_pipe_is_rejected(tmp_path, monkeypatch, capsys):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    code, text = simulate(capsys, "deploy")
    assert code == 2 and text.endswith(
        f"not a valid kubeconfig file: {path} is not a regular file\n"
    )


def test_missing_configuration_is_a_one_line_error(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none")
    )
    code, text = simulate(capsys, "deploy")
    assert code == 2 and "no cluster is configured" in text and text.count("\n") == 1
