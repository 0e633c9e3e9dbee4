"""The buttons of the page and their permissions."""

from __future__ import annotations

import json
import re

import pytest

from devicemanager import EventKind
from devicemanager.observe.web import HttpServer

from .conftest import GPU


def wait_for(node, kind, **more):
    return node.kubelet.wait_for_event(kind, after=0, **more)


@pytest.fixture
def dialog(page):
    return page.get_by_role("dialog")


def test_token_is_removed_from_url_and_stored_in_tab(node, page, expect):
    assert node.token not in page.url
    assert node.token not in page.content()
    page.reload()
    expect(page.get_by_role("button", name="Admit a pod…")).to_be_enabled()
    assert page.evaluate("document.cookie") == ""


def test_admit_dialog_admits_pod(node, page, dialog, expect):
    node.simulate(count=1)
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*1"))
    page.get_by_role("button", name="Admit a pod…").click()
    assert f"{GPU}: 1" in dialog.get_by_label("Manifest").input_value()
    dialog.get_by_role("button", name="Admit", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("listbox", name="Pods")).to_contain_text("default/pod-1")
    assert wait_for(node, EventKind.ADMITTED).pod


def test_admit_dialog_shows_rejection_with_explanation(node, page, dialog, expect):
    node.simulate(count=1)
    page.get_by_role("button", name="Admit a pod…").click()
    manifest = dialog.get_by_label("Manifest")
    manifest.fill(manifest.input_value().replace(f"{GPU}: 1", f"{GPU}: 2"))
    dialog.get_by_role("button", name="Admit", exact=True).click()
    expect(dialog).to_contain_text("UnexpectedAdmissionError")
    expect(dialog).to_contain_text("Requested: 2, Available: 1")
    manifest.fill("kind: Pod\nmetadata: {name: '<b>'}")
    dialog.get_by_role("button", name="Admit", exact=True).click()
    expect(dialog.locator(".answer")).to_have_attribute("data-error", "true")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_delete_button_asks_before_deleting(node, page, dialog, expect):
    node.simulate(count=1)
    node.admit("train").raise_for_rejection()
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    page.get_by_role("button", name="Delete this pod…").click()
    assert node.kubelet.pods()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*1"))
    assert not node.kubelet.pods()


def test_details_show_container_settings(node, page, expect):
    node.simulate(count=1, env_prefix="GPU")
    options = node.admit("train").containers["main"].run_options
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    page.get_by_role("button", name="Show settings").click()
    name, value = next(iter(options.envs.items()))
    expect(page.locator("#detail")).to_contain_text(f"{name}={value}")


def test_device_breaks_and_recovers(node, page, expect):
    node.simulate(count=1, numa=(0,))
    page.get_by_role("grid").click(position={"x": 12, "y": 12})
    page.get_by_role("button", name="Break this device").click()
    expect(page.locator("#detail")).to_contain_text("Unhealthy")
    node.kubelet.wait_for(lambda: node.kubelet.allocatable() == {GPU: 0})
    page.get_by_role("button", name="Recover this device").click()
    node.kubelet.wait_for(lambda: node.kubelet.allocatable() == {GPU: 1})
    expect(page.get_by_role("button", name="Break this device")).to_be_visible()


def test_failed_action_shows_error(node, page, expect):
    """As after the device was removed meanwhile."""
    node.simulate(count=1, numa=(0,))
    body = json.dumps({"resource": GPU, "id": "gone", "health": "Unhealthy"})
    page.route("**/page/device-health", lambda route: route.continue_(post_data=body))
    page.get_by_role("grid").click(position={"x": 12, "y": 12})
    page.get_by_role("button", name="Break this device").click()
    expect(page.locator("#notice")).to_contain_text("unknown device gone")


def test_device_of_external_plugin_has_no_break_button(node, page, expect):
    node.simulate(count=1, numa=(0,), breakable=False)
    page.get_by_role("grid").click(position={"x": 12, "y": 12})
    expect(page.locator("#detail-title")).to_have_text("Device gpu-mock-0")
    expect(page.get_by_role("button", name="Break this device")).to_have_count(0)


@pytest.mark.parametrize("name", ["Restart", "Reboot"])
def test_buttons_restart_and_reboot(node, page, dialog, expect, name):
    node.simulate(count=1)
    started = len(node.kubelet.events.recent(EventKind.STARTED))
    page.get_by_role("button", name=f"{name}…").click()
    expect(dialog).to_be_visible()  # nothing happens before the confirmation
    assert len(node.kubelet.events.recent(EventKind.STARTED)) == started
    dialog.get_by_role("button", name=name).click()
    expect(dialog).to_be_hidden()
    assert len(node.kubelet.events.recent(EventKind.STARTED)) == started + 1
    expect(page.get_by_role("status").first).to_contain_text(re.compile("restarted|rebooted"))
    expect(page.locator("#connection")).to_have_text("live")


def test_button_stops_and_starts_kubelet(node, page, dialog, expect):
    page.get_by_role("button", name="Stop…").click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator("#node-facts")).to_contain_text("stopped")
    assert not node.kubelet.is_serving
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#node-facts")).to_contain_text("serving")


def test_fault_dialog_sets_and_list_clears_fault(node, page, dialog, expect):
    page.get_by_role("button", name="Set a fault…").click()
    dialog.get_by_label("Kind", exact=True).select_option("reject-register")
    expect(dialog).to_contain_text("Register is rejected")
    dialog.get_by_label("Fault", exact=True).fill("reject-register:times=3")
    dialog.get_by_role("button", name="Set").click()
    faults = page.get_by_role("region", name="Faults")
    expect(faults).to_contain_text("reject-register:times=3")
    assert [str(each.fault) for each in node.kubelet.faults.list()] == ["reject-register:times=3"]
    faults.get_by_role("button", name=re.compile("^Clear the fault")).click()
    expect(faults).to_be_hidden()
    assert not node.kubelet.faults.list()


def test_fault_dialog_shows_error_of_invalid_fault(page, dialog, expect):
    page.get_by_role("button", name="Set a fault…").click()
    dialog.get_by_label("Fault", exact=True).fill("no-such-fault")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.locator(".answer")).to_contain_text("no-such-fault")


def test_buttons_require_token(node, new_tab, expect):
    page = new_tab().open(node.server.url)
    admit = page.get_by_role("button", name="Admit a pod…")
    expect(admit).to_be_disabled()
    expect(admit).to_have_attribute("title", "enter the token first")
    page.get_by_role("button", name="Enter the token…").click()
    page.get_by_label("Token", exact=True).fill("wrong")
    page.get_by_role("button", name="Use it").click()
    page.get_by_role("button", name="Restart…").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.get_by_role("dialog")).to_contain_text("control.token")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Enter the token…").click()
    page.get_by_label("Token", exact=True).fill(node.token)
    page.keyboard.press("Enter")
    expect(admit).to_be_enabled()


def test_buttons_show_reason_without_control_api(node, new_tab, expect):
    with HttpServer(node.kubelet, "127.0.0.1:0") as server:
        page = new_tab().open(server.url)
        admit = page.get_by_role("button", name="Admit a pod…")
        expect(admit).to_be_disabled()
        expect(admit).to_have_attribute("title", re.compile("control API is disabled"))
        page.goto("about:blank")
