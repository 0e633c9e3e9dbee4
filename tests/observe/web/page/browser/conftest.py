"""A node, its page, and a real Chromium that shows it.

``make browser`` installs the driver and runs these tests. Without driver or browser they are
skipped. Every expectation waits, up to the driver's time limit.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util

import attrs
import pytest

from devicemanager.control import ControlServer
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.observe.web import HttpServer
from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
from devicemanager.testing import pod_manifest
from tests.paths import ROOT
from tools.chromium import ARGUMENTS, MISSING, chromium

GPU = "vendor.com/gpu"
OPTIONS = [
    *ARGUMENTS,
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A foreign name that resolves to this machine, for tests of DNS rebinding.
    "--host-resolver-rules=MAP rebound.example 127.0.0.1",
]
PICTURES = ROOT / ".cache" / "browser-pictures"


@functools.cache
def missing():
    """Return why these tests cannot run; empty if they can."""
    if importlib.util.find_spec("playwright") is None:
        return "the browser's driver is not installed: run `make browser`"
    if chromium() is None:
        return MISSING
    return ""


def pytest_itemcollected(item):
    """Skip the tests of this directory, for which alone pytest calls this, without a browser."""
    if why := missing():
        item.add_marker(pytest.mark.skip(reason=why))


@attrs.define
class Node:
    """A kubelet with simulated plugins, and its page."""

    kubelet: MockKubelet
    server: HttpServer
    token: str
    plugins: dict
    stack: contextlib.ExitStack

    @property
    def address(self):
        """URL with the token, as `run` prints it."""
        return f"{self.server.url}/#token={self.token}"

    def simulate(self, resource=GPU, count=2, numa=(), breakable=True, **more):
        name = resource.rpartition("/")[2]
        settings = SimulationSettings(
            resource_name=resource,
            number_devices=count,
            numa=numa,
            plugin_name=name,
            device_id_prefix=name,
            node_name="mock",
            **more,
        )
        plugin = self.stack.enter_context(SimulatedPlugin(settings, self.kubelet.plugin_dir))
        self.kubelet.wait_for_resource(resource, count)
        if breakable:
            self.plugins[resource] = plugin
        return plugin

    def admit(self, name, count=1, resource=GPU, **more):
        return self.kubelet.admit(pod_manifest(name, {resource: count}, **more))

    def ids(self, resource=GPU):
        return [each.id for each in self.kubelet.inventory() if each.resource == resource]


@pytest.fixture
def node(make_mock_kubelet):
    kubelet = make_mock_kubelet()
    plugins = {}

    def simulated():
        return {resource: plugin.set_health for resource, plugin in plugins.items()}

    control = ControlServer(kubelet)
    with (
        contextlib.ExitStack() as stack,
        HttpServer(kubelet, "127.0.0.1:0", control=control, simulated=simulated) as server,
    ):
        yield Node(kubelet, server, control.token_path.read_text().strip(), plugins, stack)


@pytest.fixture(scope="module")
def browser():
    """A Chromium for one module."""
    # Not for the session: while the driver runs, this thread has a running event loop.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=OPTIONS)
        yield browser
        browser.close()


@attrs.define
class Tab:
    """A tab and its errors."""

    page: object
    complaints: list = attrs.field(factory=list)

    def open(self, address):
        self.page.goto(address)
        self.page.wait_for_selector("body[data-serving]")
        return self.page


@pytest.fixture
def new_tab(browser):
    """Return a function that opens tabs in separate profiles. A tab that shows a dialog, violates
    the policy or logs an error fails the test."""
    contexts, tabs = [], []

    def new_tab(**options):
        options.setdefault("viewport", {"width": 1440, "height": 900})
        context = browser.new_context(**options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => "
            "console.error('policy: ' + e.effectiveDirective))"
        )
        tab = Tab(context.new_page())
        tab.page.on("pageerror", lambda error: tab.complaints.append(f"error: {error}"))
        tab.page.on("dialog", lambda dialog: tab.complaints.append(f"dialog: {dialog.message}"))
        tab.page.on("console", lambda message: complain(tab, message))
        tabs.append(tab)
        return tab

    def complain(tab, message):
        # Failed requests are expected in some tests, which check the result themselves.
        if message.type == "error" and "Failed to load resource" not in message.text:
            tab.complaints.append(message.text)

    yield new_tab
    for context in contexts:
        context.close()
    assert [tab.complaints for tab in tabs if tab.complaints] == []


@pytest.fixture
def page(node, new_tab):
    """The page of the node, open in a tab, with the token."""
    return new_tab().open(node.address)


@pytest.fixture
def expect():
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    return expect


@pytest.fixture
def picture(request):
    """Return a function that stores a screenshot in ``.cache`` and returns its path."""

    def picture(page, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        page.screenshot(path=path)
        return path

    return picture
