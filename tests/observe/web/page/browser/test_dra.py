"""Claims, drivers and slices of DRA on the page."""

from __future__ import annotations

import pytest

from devicemanager.driver.simulated import SimulatedDriver
from tests.claims.dra.objects import slice_
from tests.kubelet.dra.objects import DRIVER, claim, pod


@pytest.fixture
def dialog(page):
    return page.get_by_role("dialog")


@pytest.fixture
def detail(page):
    return page.locator("#detail")


def test_claim_is_opened_with_pod_devices_and_reason(node, page, detail, expect):
    expect(page.locator("#claims-panel")).to_be_hidden()
    node.kubelet.admit(pod(), claims=claim("gpu", "gpu-0"))
    claims = page.get_by_role("listbox", name="ResourceClaims")
    claims.get_by_text("default/gpu").click()
    expect(detail).to_contain_text("no-driver")
    expect(detail).to_contain_text(f"DRA driver {DRIVER} is not registered")
    expect(detail).to_contain_text("not prepared, request gpu")
    with SimulatedDriver(kubelet=node.kubelet) as driver:
        driver.wait_registered()
        node.kubelet.resync("uid-train")
        expect(detail).to_contain_text("prepared")
        expect(detail).to_contain_text("CDI ")
        detail.get_by_role("button", name="default/train").click()
        expect(page.locator("#detail-title")).to_contain_text("Pod train")
        expect(detail).to_contain_text("CDI k8s.gpu.example.com/claim=uid-gpu-gpu-0")
        drivers = page.get_by_role("listbox", name="DRA drivers")
        drivers.get_by_text(DRIVER).click()
        expect(detail).to_contain_text("dra.sock")
        detail.get_by_role("button", name="Set a fault of this instance…").click()
        given = page.get_by_role("dialog").get_by_label("Fault", exact=True)
        wanted = f"fail-call:rpc=NodePrepareResources,resource={DRIVER},plugin=dra.sock"
        expect(given).to_have_value(wanted)


def test_objects_are_applied_and_deleted(node, page, dialog, detail, expect):
    page.get_by_role("button", name="Apply objects…").click()
    dialog.get_by_role("button", name="Apply", exact=True).click()
    expect(dialog).to_be_hidden()
    claims = page.get_by_role("listbox", name="ResourceClaims")
    claims.get_by_text("default/gpu").click()
    expect(detail).to_contain_text("no pod of the node uses the claim")
    node.kubelet.resource_claims.offer({"kind": "ResourceSlice", **slice_("gpu-0", pool="mock")})
    page.get_by_role("listbox", name="ResourceSlices").get_by_text("s", exact=True).click()
    expect(detail).to_contain_text("gpu-0 of claim default/gpu")
    claims.get_by_text("default/gpu").click()
    detail.get_by_role("button", name="Delete this claim…").click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(detail).to_contain_text("deleted")
    expect(page.locator("#claims-panel")).to_be_hidden()
    assert node.kubelet.resource_claims.list() == ()
