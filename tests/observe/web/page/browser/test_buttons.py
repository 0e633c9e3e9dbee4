"""What the page's buttons do, and what they need for it."""

from __future__ import annotations

import json
import re

import pytest

from devicemanager import EventKind

from .conftest import GPU


def wait_for(node, kind, **more):
    return node.kubelet.wait_for_event(kind, after=0, **more)


@pytest.fixture
def dialog(page):
    return page.get_by_role("dialog")


def test_the_token_leaves_the_address_and_stays_in_the_tab(node, page, expect):
    assert node.token not in page.url
    assert node.token not in page.content()
    page.reload()
    expect(page.get_by_role("button", name="Admit a pod…")).to_be_enabled()
    assert page.evaluate("document.cookie") == ""


def test_a_pod_is_admitted(node, page, dialog, expect):
    node.simulate(count=1)
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*1"))
    page.get_by_role("button", name="Admit a pod…").click()
    assert f"{GPU}: 1" in dialog.get_by_label("Manifest").input_value()
    dialog.get_by_role("button", name="Admit", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("listbox", name="Pods")).to_contain_text("default/pod-1")
    assert wait_for(node, EventKind.ADMITTED).pod


def test_a_rejection_is_shown_with_its_explanation(node, page, dialog, expect):
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


def test_a_pod_is_deleted_after_a_question(node, page, dialog, expect):
    node.simulate(count=1)
    node.admit("train").raise_for_rejection()
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    page.get_by_role("button", name="Delete this pod…").click()
    assert node.kubelet.pods()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*1"))
    assert not node.kubelet.pods()


def test_the_settings_of_a_pod_are_shown(node, page, expect):
    node.simulate(count=1, env_prefix="GPU")
    options = node.admit("train").containers["main"].run_options
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    page.get_by_role("button", name="Show settings").click()
    name, value = next(iter(options.envs.items()))
    expect(page.locator("#detail")).to_contain_text(f"{name}={value}")


def test_a_device_breaks_and_is_mended(node, page, expect):
    node.simulate(count=1, numa=(0,))
    page.get_by_role("grid").click(position={"x": 12, "y": 12})
    page.get_by_role("button", name="Break this device").click()
    expect(page.locator("#detail")).to_contain_text("Unhealthy")
    node.kubelet.wait_for(lambda: node.kubelet.allocatable() == {GPU: 0})
    page.get_by_role("button", name="Mend this device").click()
    node.kubelet.wait_for(lambda: node.kubelet.allocatable() == {GPU: 1})
    expect(page.get_by_role("button", name="Break this device")).to_be_visible()


def test_what_cannot_be_done_is_said(node, page, expect):
    """As when the device has just gone."""
    node.simulate(count=1, numa=(0,))
    body = json.dumps({"resource": GPU, "id": "gone", "health": "Unhealthy"})
    page.route("**/page/device-health", lambda route: route.continue_(post_data=body))
    page.get_by_role("grid").click(position={"x": 12, "y": 12})
    page.get_by_role("button", name="Break this device").click()
    expect(page.locator("#notice")).to_contain_text("there is no device gone")


def test_a_device_of_a_plugin_elsewhere_has_no_such_button(node, page, expect):
    node.simulate(count=1, numa=(0,), breakable=False)
    page.get_by_role("grid").click(position={"x": 12, "y": 12})
    expect(page.locator("#detail-title")).to_have_text("Device gpu-mock-0")
    expect(page.get_by_role("button", name="Break this device")).to_have_count(0)


@pytest.mark.parametrize("name", ["Restart", "Reboot"])
def test_the_kubelet_starts_anew(node, page, dialog, expect, name):
    node.simulate(count=1)
    started = len(node.kubelet.events.recent(EventKind.STARTED))
    page.get_by_role("button", name=f"{name}…").click()
    expect(dialog).to_be_visible()  # it asks first
    assert len(node.kubelet.events.recent(EventKind.STARTED)) == started
    dialog.get_by_role("button", name=name).click()
    expect(dialog).to_be_hidden()
    assert len(node.kubelet.events.recent(EventKind.STARTED)) == started + 1
    expect(page.get_by_role("status").first).to_contain_text(re.compile("restarted|rebooted"))
    expect(page.locator("#connection")).to_have_text("live")


def test_the_kubelet_stops_and_starts(node, page, dialog, expect):
    page.get_by_role("button", name="Stop…").click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator("#node-facts")).to_contain_text("stopped")
    assert not node.kubelet.is_serving
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#node-facts")).to_contain_text("serving")


def test_a_fault_is_set_and_cleared(node, page, dialog, expect):
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


def test_a_fault_that_cannot_be_is_said_in_the_dialog(page, dialog, expect):
    page.get_by_role("button", name="Set a fault…").click()
    dialog.get_by_label("Fault", exact=True).fill("no-such-fault")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.locator(".answer")).to_contain_text("no-such-fault")


def test_without_the_token_nothing_can_be_changed_until_it_is_given(node, new_tab, expect):
    page = new_tab().open(node.server.url)
    admit = page.get_by_role("button", name="Admit a pod…")
    expect(admit).to_be_disabled()
    expect(admit).to_have_attribute("title", "give the token first")
    page.get_by_role("button", name="Give the token…").click()
    page.get_by_label("Token", exact=True).fill("wrong")
    page.get_by_role("button", name="Take it").click()
    page.get_by_role("button", name="Restart…").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.get_by_role("dialog")).to_contain_text("control.token")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Give the token…").click()
    page.get_by_label("Token", exact=True).fill(node.token)
    page.keyboard.press("Enter")
    expect(admit).to_be_enabled()


def test_without_the_control_api_the_reason_is_said(node, new_tab, expect):
    from devicemanager.observe.web import HttpServer

    with HttpServer(node.kubelet, "127.0.0.1:0") as server:
        page = new_tab().open(server.url)
        admit = page.get_by_role("button", name="Admit a pod…")
        expect(admit).to_be_disabled()
        expect(admit).to_have_attribute("title", re.compile("control API is off"))
        page.goto("about:blank")
