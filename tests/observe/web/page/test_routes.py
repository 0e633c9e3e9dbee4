"""The page over HTTP: its files, its stream, its requests and their permissions."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
from importlib.resources import files

import pytest

from devicemanager import Settings
from devicemanager.control import ControlServer
from devicemanager.control.errors import HttpError
from devicemanager.control.request import Budget
from devicemanager.kubelet.pods.options import CdiRules
from devicemanager.kubelet.wire.errors import WireError
from devicemanager.observe.web import HttpServer
from devicemanager.observe.web.page.routes import POLICY, SiteNode, _Messages, container_settings
from devicemanager.observe.web.site import Site
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest

from ..conftest import fetch

STATIC = files("devicemanager.observe.web.page") / "static"
FILES = sorted(file.name for file in STATIC.iterdir())
GPU = "vendor.com/gpu"


@pytest.fixture
def simulated():
    return {}


@pytest.fixture
def control(mock_kubelet):
    return ControlServer(mock_kubelet)


@pytest.fixture
def served(mock_kubelet, control, simulated):
    given = {"control": control, "simulated": lambda: simulated}
    with HttpServer(mock_kubelet, "127.0.0.1:0", **given) as server:
        yield server


@pytest.fixture
def post(served, control):
    def post(path, body, **headers):
        token = control.token_path.read_text().strip()
        headers = {"Authorization": f"Bearer {token}", **headers}
        return fetch(served.address, path, headers, "POST", json.dumps(body))

    return post


class Stream:
    """The open stream of one page."""

    def __init__(self, address, path="/page/stream", headers=None):
        self._connection = http.client.HTTPConnection(address, timeout=20)
        self._connection.request("GET", path, headers=headers or {})
        self.answer = self._connection.getresponse()

    def message(self):
        """Return kind, ID and data of the next event."""
        fields = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields.get("event"), fields.get("id"), json.loads(fields.get("data", "null"))

    def until(self, wanted):
        """Return the first changed row for which ``wanted(name, group, key, row)`` is True."""
        while True:
            _, _, data = self.message()
            for name, group, rows, *_ in data["changes"]:
                for key, row in rows:
                    if wanted(name, group, key, row):
                        return row

    def close(self):
        self._connection.close()


@pytest.fixture
def stream(served):
    opened = []

    def stream(*given):
        opened.append(Stream(served.address, *given))
        return opened[-1]

    yield stream
    for each in opened:
        each.close()


# -- files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", *(f"/page/{name}" for name in FILES if name != "index.html")]
)
def test_files_have_media_type_and_strict_policy(get, path):
    answer = get(path)
    suffix = path.rpartition(".")[2] if path != "/" else "html"
    kind = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert answer.status == 200
    assert answer.headers["content-type"].partition(";")[0] == kind[suffix]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.body == (STATIC / (path.rpartition("/")[2] or "index.html")).read_bytes()


def test_policy_allows_only_own_files():
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in POLICY and "http" not in POLICY and "*" not in POLICY


def test_static_files_comply_with_policy():
    for name in FILES:
        text = (STATIC / name).read_text()
        if name.endswith(".js"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)
            assert not re.search(r"\beval\(|new Function|setAttribute\(\"(style|on)", text)
            for imported in re.findall(r'^import .* from "(.*)";$', text, re.MULTILINE):
                assert imported.removeprefix("./") in FILES
        if name.endswith(".html"):
            assert not re.search(r"<style|\son\w+=|\sstyle=|<script(?![^>]*\ssrc=\"/page/)", text)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|//cdn", text), "from elsewhere"


@pytest.mark.parametrize(
    "path", ["/page/", "/page/../routes.py", "/page/routes.py", "/page/%2e%2e/x"]
)
def test_unknown_page_files_are_not_found(get, path):
    assert get(path).status == 404


# -- the stream ------------------------------------------------------------------------


def test_stream_sends_node_and_changes(mock_kubelet, simulated_plugin, stream):
    opened = stream()
    assert opened.answer.headers["content-type"] == "text/event-stream"
    assert opened.answer.headers["content-security-policy"] == POLICY
    kind, _, data = opened.message()
    tables = {(name, group): dict(rows) for name, group, rows, *_ in data["changes"]}
    assert kind == "whole"
    assert tables["node", ""]["node"]["serving"] is True
    assert tables["site", ""]["site"] == {"control": True, "simulated": []}
    assert "reject-register" in tables["kinds", ""]
    simulated_plugin(GPU, 2)
    mock_kubelet.wait_for_resource(GPU, 2)
    mock_kubelet.admit(pod_manifest("a", {GPU: 1})).raise_for_rejection()
    row = opened.until(lambda name, group, key, row: name == "devices" and row[0] == "allocated")
    assert row[2] == [[next(iter(mock_kubelet.pods())), "main"]]


def test_reconnecting_page_resumes_after_last_event(mock_kubelet, stream):
    first = stream()
    _, seen, _ = first.message()
    first.close()
    mock_kubelet.faults.set("reject-register")
    again = stream("/page/stream", {"Last-Event-ID": seen})
    kind, _, data = again.message()
    assert kind == "delta"
    assert [name for name, *_ in data["changes"]] == ["faults"]
    # A page that was hidden sends the ID in the URL instead.
    assert stream(f"/page/stream?since={seen}").message()[0] == "delta"


def test_stream_continues_while_kubelet_is_stopped(mock_kubelet, stream):
    opened = stream()
    opened.message()
    mock_kubelet.stop()
    shown = opened.until(lambda name, group, key, row: name == "node")
    assert shown["serving"] is False
    mock_kubelet.start()
    assert opened.until(lambda name, *_: name == "node")["serving"] is True


def test_messages_in_progress_count_for_the_memory_budget():
    """Messages to a slow client stay in memory, which is limited."""
    budget, sent = Budget(10), []

    async def messages():
        yield b"12345678"
        yield b"12345678901"

    async def send(message):
        sent.append((message["type"], budget.used))

    async def receive():
        await asyncio.Event().wait()

    with (
        budget.account() as account,
        pytest.raises(
            HttpError,
            match=r"^the memory for requests and responses in progress is used up: try again",
        ),
    ):
        asyncio.run(_Messages(messages(), account)({"method": "GET"}, receive, send))
    assert sent[-1] == ("http.response.body", 8)
    assert budget.used == 0


def test_stopping_server_ends_stream(mock_kubelet):
    with HttpServer(mock_kubelet, "127.0.0.1:0") as server:
        opened = Stream(server.address)
        opened.message()
    assert opened.answer.read() == b""
    opened.close()


# -- requests of the page --------------------------------------------------------------


def test_device_health_request_breaks_simulated_device(
    mock_kubelet, simulated_plugin, simulated, post, stream
):
    plugin = simulated_plugin(GPU, 2)
    simulated[GPU] = plugin.set_health
    mock_kubelet.wait_for_resource(GPU, 2)
    id_ = mock_kubelet.inventory()[0].id
    opened = stream()
    body = {"resource": GPU, "id": id_, "health": "Unhealthy"}
    assert post("/page/device-health", body).status == 204
    opened.until(lambda name, group, key, row: key == id_ and row[0] == "unhealthy")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"resource": "vendor.com/other", "id": "a", "health": "Healthy"}, 409, "not simulated"),
        ({"resource": GPU, "id": "unknown-id", "health": "Healthy"}, 422, "unknown-id"),
        ({"resource": GPU, "id": "a", "health": "Sick"}, 422, "Sick"),
        ({"resource": GPU}, 400, "missing required field"),
        ([], 400, "Expected `object`"),
    ],
)
def test_device_health_request_reports_errors(
    simulated_plugin, simulated, post, body, status, text
):
    simulated[GPU] = simulated_plugin(GPU, 1).set_health
    answer = post("/page/device-health", body)
    assert answer.status == status
    assert text in answer.text and "\n" not in answer.text.rstrip("\n")


def test_post_rejects_large_body(post):
    answer = post("/page/settings", {"uid": "x" * (1 << 20)})
    assert answer.status == 413


def test_post_times_out_without_body(post, monkeypatch):
    monkeypatch.setattr("devicemanager.control.request.BODY_SECONDS", 0.05)
    assert post("/page/settings", {}, **{"Content-Length": "9"}).status == 408


def test_calls_without_events_notify_subscribers(mock_kubelet, simulated_plugin):
    simulated_plugin(GPU, 1)
    mock_kubelet.wait_for_resource(GPU, 1)
    called = threading.Event()
    end = SiteNode(Site(mock_kubelet, None, None)).subscribe(called.set)
    mock_kubelet.options(GPU)
    assert called.wait(20)
    end()
    called.clear()
    mock_kubelet.options(GPU)
    assert not called.is_set()


def test_container_settings_require_token(mock_kubelet, simulated_plugin, post):
    simulated_plugin(GPU, 1)
    mock_kubelet.wait_for_resource(GPU, 1)
    admission = mock_kubelet.admit(pod_manifest("a", {GPU: 1}))
    found = post("/page/settings", {"uid": admission.uid}).json()
    settings = found["main"]["settings"]
    assert settings["envs"] == dict(admission.containers["main"].run_options.envs)
    assert post("/page/settings", {"uid": "unknown"}).json() == {}
    assert post("/page/settings", {"uid": admission.uid}, Authorization="").status == 401


@pytest.mark.parametrize("version", ["1.27", "1.28", "1.30", "1.36"])
def test_container_settings_depend_on_version(make_mock_kubelet, version):
    kubelet = make_mock_kubelet(Settings(kubelet_version=version))
    settings = SimulationSettings(resource_name=GPU, number_devices=1, cdi_kind="vendor.com/gpu")
    with SimulatedPlugin(settings, kubelet.plugin_dir):
        kubelet.wait_for_resource(GPU, 1)
        admission = kubelet.admit(pod_manifest("a", {GPU: 1}))
        found = container_settings(kubelet, admission.uid)
    assert found == {"main": {"settings": admission.containers["main"].run_options, "error": None}}


def test_container_settings_have_the_error_of_an_invalid_response(
    mock_kubelet, simulated_plugin, monkeypatch
):
    simulated_plugin(GPU, 2)
    mock_kubelet.wait_for_resource(GPU, 2)
    admission = mock_kubelet.admit(pod_manifest("a", {GPU: 1}, {GPU: 1}))
    options = CdiRules.options

    def fail(rules, holdings, pod, container):
        if container == "main":
            raise WireError("invalid response")
        return options(rules, holdings, pod, container)

    monkeypatch.setattr(CdiRules, "options", fail)
    found = container_settings(mock_kubelet, admission.uid)
    assert found == {
        "main": {"settings": None, "error": "invalid response"},
        "main-2": {"settings": admission.containers["main-2"].run_options, "error": None},
    }


# -- permissions -----------------------------------------------------------------------

PROTECTED = [("/page/device-health", {}), ("/page/settings", {}), ("/v1/node/restart", None)]


@pytest.mark.parametrize(("path", "body"), PROTECTED)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_changes_require_token_and_same_origin(post, path, body, headers, status):
    assert post(path, body, **headers).status == status


@pytest.mark.parametrize("path", ["/", "/page/stream", "/page/main.js"])
@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_reading_requires_same_origin(get, path, name):
    """A foreign name that resolves to this host, and a page of another site."""
    answer = get(path, **{name: "http://evil.example" if name == "Origin" else "evil.example"})
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_page_is_read_only_without_control_api(mock_kubelet):
    with HttpServer(mock_kubelet, "127.0.0.1:0") as server:
        assert fetch(server.address, "/").status == 200
        opened = Stream(server.address)
        _, _, data = opened.message()
        site = {name: dict(rows) for name, _, rows, *_ in data["changes"]}["site"]["site"]
        assert site["control"] is False
        opened.close()
        rejected = fetch(server.address, "/page/device-health", {}, "POST", "{}")
        assert rejected.status == 401
