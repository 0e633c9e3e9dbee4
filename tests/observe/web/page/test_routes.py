"""The page over HTTP: its files, its stream, what it may change, and who may not."""

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
from devicemanager.observe.web import HttpServer
from devicemanager.observe.web.page.actions import SettingsOf, container_settings
from devicemanager.observe.web.page.headers import POLICY
from devicemanager.observe.web.page.node import SiteNode
from devicemanager.observe.web.page.routes import _Messages
from devicemanager.observe.web.site import Site
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest

from ..conftest import asked

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
        return asked(served.address, path, headers, "POST", json.dumps(body))

    return post


class Stream:
    """An open stream of one page."""

    def __init__(self, address, path="/page/stream", headers=None):
        self._connection = http.client.HTTPConnection(address, timeout=20)
        self._connection.request("GET", path, headers=headers or {})
        self.answer = self._connection.getresponse()

    def message(self):
        """The next event: its kind, its id, its data."""
        fields = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields.get("event"), fields.get("id"), json.loads(fields.get("data", "null"))

    def until(self, wanted):
        """The first row of a change for which ``wanted(name, group, key, row)`` holds."""
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
def test_every_file_is_served_with_its_kind_and_a_strict_policy(get, path):
    answer = get(path)
    suffix = path.rpartition(".")[2] if path != "/" else "html"
    kind = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert answer.status == 200
    assert answer.headers["content-type"].partition(";")[0] == kind[suffix]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.body == (STATIC / (path.rpartition("/")[2] or "index.html")).read_bytes()


def test_the_policy_allows_files_of_ours_and_nothing_else():
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in POLICY and "http" not in POLICY and "*" not in POLICY


def test_the_files_ask_for_nothing_that_the_policy_forbids():
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
    "path", ["/page/", "/page/../headers.py", "/page/headers.py", "/page/%2e%2e/x"]
)
def test_nothing_else_is_served(get, path):
    assert get(path).status == 404


# -- the stream ------------------------------------------------------------------------


def test_the_stream_tells_the_node_and_what_changes(mock_kubelet, simulated_plugin, stream):
    opened = stream()
    assert opened.answer.headers["content-type"] == "text/event-stream"
    assert opened.answer.headers["content-security-policy"] == POLICY
    kind, _, data = opened.message()
    tables = {(name, group): dict(rows) for name, group, rows, *_ in data["changes"]}
    assert kind == "whole"
    assert tables["node", ""]["node"]["serving"] is True
    assert tables["site", ""]["site"] == {"steers": True, "simulated": []}
    assert "reject-register" in tables["kinds", ""]
    simulated_plugin(GPU, 2)
    mock_kubelet.wait_for_resource(GPU, 2)
    mock_kubelet.admit(pod_manifest("a", {GPU: 1})).raise_for_rejection()
    held = opened.until(lambda name, group, key, row: name == "devices" and row[0] == "held")
    assert held[2] == [[next(iter(mock_kubelet.pods())), "main"]]


def test_a_page_that_connects_again_goes_on_where_it_was(mock_kubelet, stream):
    first = stream()
    _, seen, _ = first.message()
    first.close()
    mock_kubelet.faults.set("reject-register")
    again = stream("/page/stream", {"Last-Event-ID": seen})
    kind, _, data = again.message()
    assert kind == "delta"
    assert [name for name, *_ in data["changes"]] == ["faults"]
    # That which is open counts, not the address: a page that was hidden says it there.
    assert stream(f"/page/stream?since={seen}").message()[0] == "delta"


def test_a_stopped_kubelet_is_shown_and_the_stream_goes_on(mock_kubelet, stream):
    opened = stream()
    opened.message()
    mock_kubelet.stop()
    shown = opened.until(lambda name, group, key, row: name == "node")
    assert shown["serving"] is False
    mock_kubelet.start()
    assert opened.until(lambda name, *_: name == "node")["serving"] is True


def test_messages_under_way_count_as_all_other_answers_do():
    """Who does not read keeps a message in memory, and there is not room for any number."""
    budget, sent = Budget(10), []

    async def messages():
        yield b"12345678"
        yield b"12345678901"

    async def send(message):
        sent.append((message["type"], budget.used))

    async def receive():
        await asyncio.Event().wait()

    with budget.account() as account, pytest.raises(HttpError, match="try again"):
        asyncio.run(_Messages(messages(), account)({"method": "GET"}, receive, send))
    assert sent[-1] == ("http.response.body", 8)
    assert budget.used == 0


def test_a_server_that_stops_ends_the_stream(mock_kubelet):
    with HttpServer(mock_kubelet, "127.0.0.1:0") as server:
        opened = Stream(server.address)
        opened.message()
    assert opened.answer.read() == b""
    opened.close()


# -- what is changed -------------------------------------------------------------------


def test_a_device_of_a_simulated_plugin_breaks(
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
        ({"resource": "vendor.com/other", "id": "a", "health": "Healthy"}, 409, "not of a plugin"),
        ({"resource": GPU, "id": "nobody", "health": "Healthy"}, 422, "nobody"),
        ({"resource": GPU, "id": "a", "health": "Sick"}, 422, "Sick"),
        ({"resource": GPU}, 400, "missing required field"),
        ([], 400, "Expected `object`"),
    ],
)
def test_what_cannot_break_is_said(simulated_plugin, simulated, post, body, status, text):
    simulated[GPU] = simulated_plugin(GPU, 1).set_health
    answer = post("/page/device-health", body)
    assert answer.status == status
    assert text in answer.text and "\n" not in answer.text.rstrip("\n")


def test_a_body_has_a_limit(post):
    answer = post("/page/settings", {"uid": "x" * (1 << 20)})
    assert answer.status == 413


def test_a_body_that_does_not_come_is_not_waited_for(post, monkeypatch):
    monkeypatch.setattr("devicemanager.control.request.BODY_SECONDS", 0.05)
    assert post("/page/settings", {}, **{"Content-Length": "9"}).status == 408


def test_a_call_that_is_no_event_is_looked_at_too(mock_kubelet, simulated_plugin):
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


def test_the_settings_of_a_pod_need_the_token(mock_kubelet, simulated_plugin, post):
    simulated_plugin(GPU, 1)
    mock_kubelet.wait_for_resource(GPU, 1)
    admission = mock_kubelet.admit(pod_manifest("a", {GPU: 1}))
    found = post("/page/settings", {"uid": admission.uid}).json()
    settings = found["main"]["settings"]
    assert settings["envs"] == dict(admission.containers["main"].run_options.envs)
    assert post("/page/settings", {"uid": "nobody"}).json() == {}
    assert post("/page/settings", {"uid": admission.uid}, Authorization="").status == 401


@pytest.mark.parametrize("version", ["1.27", "1.28", "1.30", "1.36"])
def test_settings_are_those_of_the_kubelets_version(make_mock_kubelet, version):
    kubelet = make_mock_kubelet(Settings(kubelet_version=version))
    settings = SimulationSettings(resource_name=GPU, number_devices=1, cdi_kind="vendor.com/gpu")
    with SimulatedPlugin(settings, kubelet.plugin_dir):
        kubelet.wait_for_resource(GPU, 1)
        admission = kubelet.admit(pod_manifest("a", {GPU: 1}))
        found = container_settings(kubelet, SettingsOf(admission.uid))
    assert found == {"main": {"settings": admission.containers["main"].run_options, "error": None}}


# -- who may not -----------------------------------------------------------------------

STEERING = [("/page/device-health", {}), ("/page/settings", {}), ("/v1/node/restart", None)]


@pytest.mark.parametrize(("path", "body"), STEERING)
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
def test_other_sites_and_those_without_the_token_change_nothing(post, path, body, headers, status):
    assert post(path, body, **headers).status == status


@pytest.mark.parametrize("path", ["/", "/page/stream", "/page/main.js"])
@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_other_sites_read_nothing(get, path, name):
    """A name that its owner lets point here, and a page of another site."""
    answer = get(path, **{name: "http://evil.example" if name == "Origin" else "evil.example"})
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_without_the_control_api_the_page_only_shows(mock_kubelet):
    with HttpServer(mock_kubelet, "127.0.0.1:0") as server:
        assert asked(server.address, "/").status == 200
        opened = Stream(server.address)
        _, _, data = opened.message()
        site = {name: dict(rows) for name, _, rows, *_ in data["changes"]}["site"]["site"]
        assert site["steers"] is False
        opened.close()
        rejected = asked(server.address, "/page/device-health", {}, "POST", "{}")
        assert rejected.status == 401
