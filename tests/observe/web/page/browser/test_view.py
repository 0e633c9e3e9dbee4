"""What the page shows, and that it follows changes."""

from __future__ import annotations

import re
import threading

import pytest

from devicemanager import EventKind
from devicemanager.observe.web import HttpServer

from .conftest import GPU


def block(page, resource=GPU, area=0):
    name = re.escape(resource).replace("/", ".")  # the driver takes no slash
    return page.get_by_role("grid", name=re.compile(f"^{name}, NUMA node {area}:"))


def labels(page, grid, count):
    """Return the accessible label of each cell, by moving through them with the keyboard."""
    grid.get_by_role("gridcell").first.focus()
    page.keyboard.press("Control+Home")
    found = []
    for _ in range(count):
        found.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        page.keyboard.press("ArrowRight")
    return found


@pytest.fixture
def all_states(node):
    """Devices in every state."""
    plugin = node.simulate(count=8, numa=(0,) * 8)
    ids = node.ids()
    plugin.set_health(ids[7], False)
    node.kubelet.wait_for_resource(GPU, 7)
    node.admit("holds", 2).raise_for_rejection()
    allocated = [each.id for each in node.kubelet.inventory() if each.pod]
    node.kubelet.faults.set("delay-call", rpc="Allocate", seconds=3600)
    thread = threading.Thread(target=node.admit, args=("waits",))
    thread.start()
    node.kubelet.wait_for_event(EventKind.FAULT, after=0)
    plugin.remove(allocated[0])
    node.kubelet.wait_for_event(EventKind.DEVICES_UPDATED, text="removed", after=0)
    yield {"gone": allocated[0], "allocated": allocated[1], "unhealthy": ids[7]}
    node.kubelet.faults.clear()
    thread.join()


def test_page_shows_every_device_state(node, all_states, page, expect):
    expect(page.locator("#legend")).to_contain_text(
        re.compile(r"free\s*4\s*allocated\s*1\s*unhealthy\s*1\s*gone\s*1\s*being allocated\s*1")
    )
    found = labels(page, block(page), 8)
    words = {}
    for label in found:
        id_, _, description = label.partition(", ")
        words[id_] = description
    assert words[all_states["allocated"]] == "allocated to default/holds, container main"
    assert words[all_states["unhealthy"]] == "unhealthy"
    assert sorted(words.values()).count("free") == 4
    assert any(each.startswith("being allocated to default/waits") for each in words.values())
    assert words[all_states["gone"]] == "gone, allocated to default/holds, container main"


def test_states_differ_in_shape_and_colour_in_both_themes(page):
    """No two shapes are alike when drawn in one colour, and no two states have the same colour."""
    found = page.evaluate(
        """async () => {
          const { KINDS, picture } = await import("/page/shapes.js");
          const shapes = KINDS.map((kind) => {
            const pen = picture(kind, 16, "#000").getContext("2d");
            return Array.from(pen.getImageData(0, 0, 16, 16).data);
          });
          let nearest = Infinity;
          const apart = (a, b) => a.filter((v, n) => Math.abs(v - b[n]) > 64).length;
          for (let a = 0; a < shapes.length; a++)
            for (let b = 0; b < a; b++) nearest = Math.min(nearest, apart(shapes[a], shapes[b]));
          const colours = {};
          for (const theme of ["light", "dark"]) {
            document.documentElement.dataset.theme = theme;
            const entries = [...document.querySelectorAll("#legend li")];
            colours[theme] = entries.map((entry) => getComputedStyle(entry).color);
          }
          return { nearest, colours };
        }"""
    )
    assert found["nearest"] >= 10  # pixels of 256
    for colours in found["colours"].values():
        assert len(set(colours)) == 5
    assert not set(found["colours"]["light"]) & set(found["colours"]["dark"])


def test_canvas_pixels_match_cell_labels(node, page, expect):
    """A cell has the legend's pixels, before and after a change."""
    plugin = node.simulate(count=2, numa=(0, 0))
    expect(block(page)).to_be_visible()
    colour = """() => {
      const canvas = document.querySelector(".grid canvas");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.height, canvas.height).data;
      const found = new Map();
      for (let n = 0; n < pixels.length; n += 4)
        if (pixels[n + 3] === 255) {
          const key = `rgb(${pixels[n]}, ${pixels[n + 1]}, ${pixels[n + 2]})`;
          found.set(key, (found.get(key) ?? 0) + 1);
        }
      return [...found].sort((a, b) => b[1] - a[1])[0][0];
    }"""
    legend = (
        "(state) => getComputedStyle(document.querySelector(`#legend [data-state=${state}]`)).color"
    )
    assert page.evaluate(colour) == page.evaluate(legend, "free")
    cell = block(page).get_by_role("gridcell")
    expect(cell).to_have_accessible_name("gpu-mock-0, free")
    plugin.set_health(node.ids()[0], False)
    expect(block(page)).to_have_accessible_name(re.compile("1 unhealthy"))
    expect(cell).to_have_accessible_name("gpu-mock-0, unhealthy")
    assert page.evaluate(colour) == page.evaluate(legend, "unhealthy")


def test_hovering_shows_holder_of_device(node, page, expect):
    node.simulate(count=2, numa=(0, 0))
    node.admit("train", 2).raise_for_rejection()
    expect(block(page)).to_have_accessible_name(re.compile("2 allocated"))
    block(page).hover(position={"x": 12, "y": 12})
    expect(page.locator("#tip")).to_have_text(
        f"{node.ids()[0]}, allocated to default/train, container main"
    )
    page.mouse.move(5, 5)
    expect(page.locator("#tip")).to_be_hidden()


def test_click_shows_device_details_with_link_to_pod(node, page, expect):
    node.simulate(count=2, numa=(0, 0))
    uid = node.admit("train", 2).uid
    expect(block(page)).to_have_accessible_name(re.compile("2 allocated"))
    block(page).click(position={"x": 12, "y": 12})
    detail = page.get_by_role("region", name=re.compile("^Device "))
    expect(detail).to_contain_text(node.ids()[0])
    expect(detail).to_contain_text("Healthy")
    detail.get_by_role("button", name="default/train").click()
    pod = page.get_by_role("region", name=re.compile("^Pod train"))
    expect(pod).to_contain_text(uid)
    expect(pod.get_by_role("button", name=node.ids()[1])).to_be_visible()
    node.kubelet.terminate(uid)
    expect(pod).to_contain_text("deleted")


def test_cells_are_reachable_by_keyboard(node, page, expect):
    node.simulate(count=40, numa=(0,) * 40)
    expect(block(page)).to_be_visible()
    page.locator("#find").focus()
    page.keyboard.press("Tab")  # one stop for all cells
    focused = (
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    )
    assert page.evaluate(focused).startswith("gpu-mock-0,")
    for key, wanted in [
        ("ArrowRight", 1),
        ("End", None),
        ("ArrowLeft", None),
        ("Control+End", 39),
        ("Control+Home", 0),
    ]:
        page.keyboard.press(key)
        if wanted is not None:
            assert page.evaluate(focused).startswith(f"gpu-mock-{wanted},")
    page.keyboard.press("Enter")
    expect(page.locator("#detail")).to_be_focused()
    expect(page.locator("#detail-title")).to_have_text("Device gpu-mock-0")
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    assert page.evaluate(focused).startswith("gpu-mock-0,")  # the focus is back


def test_list_has_one_tab_stop_and_arrow_keys(node, page, expect):
    node.simulate(count=3)
    for name in ("a", "b", "c"):
        node.admit(name).raise_for_rejection()
    pods = page.get_by_role("listbox", name="Pods")
    expect(pods.get_by_role("option")).to_have_count(3)
    assert pods.locator("[tabindex='0']").count() == 1
    pods.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_have_text("Pod b")  # the newest is first


def test_page_has_names_and_roles_for_screen_readers(node, page, expect):
    node.simulate(count=2, numa=(0, 1))
    expect(block(page, area=1)).to_be_visible()
    tree = page.locator("body").aria_snapshot()
    for line in [
        'heading "Devices"',
        'region "NUMA node 0"',
        'grid "vendor.com/gpu, NUMA node 1: 1 free"',
        'gridcell "gpu-mock-0, free"',
        'listbox "Pods"',
        'listbox "Plugins"',
        'listbox "Events"',
        'button "Admit a pod…"',
    ]:
        assert line in tree, tree
    assert page.evaluate("document.documentElement.lang") == "en"
    assert not node.admit("too-big", 3).admitted
    expect(page.get_by_role("log")).to_contain_text("rejected: ")


# -- changes -----------------------------------------------------------------------------


def test_page_updates_plugins_and_events(node, page, expect):
    expect(page.locator("#no-devices")).to_be_visible()
    node.simulate(count=2)
    expect(page.locator("#no-devices")).to_be_hidden()
    plugins = page.get_by_role("listbox", name="Plugins")
    expect(plugins).to_contain_text("gpu.sock · stream open, 1 list")
    node.admit("a").raise_for_rejection()
    expect(plugins).to_contain_text("last: Allocate")
    events = page.get_by_role("listbox", name="Events")
    expect(events).to_contain_text("pod default/a admitted")
    plugins.get_by_role("option").first.click()
    expect(page.locator("#detail")).to_contain_text("GetDevicePluginOptions")


def test_page_shows_stopped_and_restarted_kubelet(node, page, expect):
    node.simulate(count=2)
    node.admit("a").raise_for_rejection()
    expect(page.locator("#legend")).to_contain_text(re.compile(r"allocated\s*1"))
    node.kubelet.stop()
    expect(page.locator("#node-facts")).to_contain_text("stopped")
    node.kubelet.start()
    node.kubelet.wait_for_resource(GPU, 2)
    expect(page.locator("#node-facts")).to_contain_text("serving")
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*1\s*allocated\s*1"))


def test_page_reconnects_to_restarted_server(node, page, expect):
    where = node.server.address
    node.server.stop()
    expect(page.locator("#connection")).to_contain_text("connection lost")
    node.simulate(count=2)  # while no server can report it
    with HttpServer(node.kubelet, where):
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*2"))
        expect(page.get_by_role("button", name="Admit a pod…")).to_be_disabled()
        page.goto("about:blank")  # so that the server does not wait for the stream


def test_hidden_page_disconnects_and_resumes(node, page, expect):
    hide = """(state) => {
      Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, "hidden")
    expect(page.locator("#connection")).to_have_text("paused")
    node.simulate(count=2)
    page.evaluate(hide, "visible")
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*2"))
    assert page.evaluate("performance.getEntriesByName('page:whole').length") == 1  # it resumed


def test_search_dims_other_devices_and_counts(node, page, expect):
    node.simulate(count=4, numa=(0,) * 4)
    node.simulate("vendor.com/nic", 2, numa=(0, 0))
    node.admit("train", 3).raise_for_rejection()
    expect(page.locator("#legend")).to_contain_text(re.compile(r"allocated\s*3"))
    for text, found in [
        ("nic", "2 devices"),
        ("TRAIN", "3 devices"),
        ("gpu-mock-3", "1 device"),
        ("x y", "0 devices"),
    ]:
        page.locator("#find").fill(text)
        expect(page.locator("#found")).to_have_text(found)
    page.locator("#find").fill("")
    expect(page.locator("#found")).to_have_text("")


# -- appearance --------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_uses_system_theme(node, new_tab, picture, expect, theme):
    plugin = node.simulate(count=8, numa=(0, 0, 0, 0, 1, 1, 1, 1))
    node.admit("train", 2).raise_for_rejection()
    plugin.set_health(node.ids()[5], False)
    page = new_tab(color_scheme=theme).open(node.address)
    expect(page.locator("#legend")).to_contain_text(re.compile(r"unhealthy\s*1"))
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, re.findall(r"\d+", background)[:3])) > 380
    assert bright is (theme == "light")
    assert picture(page, f"page-{theme}").stat().st_size > 10_000


def test_theme_choice_overrides_system_and_persists(node, new_tab, expect):
    page = new_tab(color_scheme="light").open(node.address)
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.get_by_label("Theme", exact=True).select_option("dark")
    dark = page.evaluate(background)
    assert dark != before
    page.reload()
    expect(page.get_by_label("Theme", exact=True)).to_have_value("dark")
    assert page.evaluate(background) == dark


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_page_fits_window_width(node, new_tab, expect, width):
    node.simulate(count=40, numa=(0, 1) * 20)
    page = new_tab(viewport={"width": width, "height": 800}).open(node.address)
    expect(block(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
