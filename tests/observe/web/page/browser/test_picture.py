"""What the page shows, and that it follows what happens."""

from __future__ import annotations

import re
import threading

import pytest

from devicemanager import EventKind

from .conftest import GPU


def block(page, resource=GPU, area=0):
    name = re.escape(resource).replace("/", ".")  # the driver takes no slash
    return page.get_by_role("grid", name=re.compile(f"^{name}, NUMA node {area}:"))


def labels(page, grid, count):
    """What a screen reader is told of each cell, by moving through them with the keyboard."""
    grid.get_by_role("gridcell").first.focus()
    page.keyboard.press("Control+Home")
    found = []
    for _ in range(count):
        found.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        page.keyboard.press("ArrowRight")
    return found


@pytest.fixture
def all_states(node):
    """Devices in every state there is."""
    plugin = node.simulate(count=8, numa=(0,) * 8)
    ids = node.ids()
    plugin.set_health(ids[7], False)
    node.kubelet.wait_for_resource(GPU, 7)
    node.admit("holds", 2).raise_for_rejection()
    held = [each.id for each in node.kubelet.inventory() if each.pod]
    node.kubelet.faults.set("delay-call", rpc="Allocate", seconds=3600)
    thread = threading.Thread(target=node.admit, args=("waits",))
    thread.start()
    node.kubelet.wait_for_event(EventKind.FAULT, after=0)
    plugin.remove(held[0])
    node.kubelet.wait_for_event(EventKind.DEVICES_UPDATED, text="removed", after=0)
    yield {"gone": held[0], "held": held[1], "unhealthy": ids[7]}
    node.kubelet.faults.clear()
    thread.join()


def test_every_state_is_shown_and_said(node, all_states, page, expect):
    expect(page.locator("#legend")).to_contain_text(
        re.compile(r"free\s*4\s*held\s*1\s*unhealthy\s*1\s*gone\s*1\s*being allocated\s*1")
    )
    found = labels(page, block(page), 8)
    words = {}
    for label in found:
        id_, _, said = label.partition(", ")
        words[id_] = said
    assert words[all_states["held"]] == "held by default/holds, container main"
    assert words[all_states["unhealthy"]] == "unhealthy"
    assert sorted(words.values()).count("free") == 4
    assert [said for said in words.values() if said.startswith("being allocated to default/waits")]
    assert words[all_states["gone"]] == "gone, held by default/holds, container main"


def test_states_differ_by_shape_and_by_colour_in_both_themes(page):
    """Drawn in one colour, no two shapes are alike; and no two states have one colour."""
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


def test_the_canvas_shows_what_is_said(node, page, expect):
    """The pixels of a cell are those of the legend, before and after a change."""
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


def test_hovering_says_who_holds_a_device(node, page, expect):
    node.simulate(count=2, numa=(0, 0))
    node.admit("train", 2).raise_for_rejection()
    expect(block(page)).to_have_accessible_name(re.compile("2 held"))
    block(page).hover(position={"x": 12, "y": 12})
    expect(page.locator("#tip")).to_have_text(
        f"{node.ids()[0]}, held by default/train, container main"
    )
    page.mouse.move(5, 5)
    expect(page.locator("#tip")).to_be_hidden()


def test_a_click_shows_everything_about_a_device_and_leads_to_its_pod(node, page, expect):
    node.simulate(count=2, numa=(0, 0))
    uid = node.admit("train", 2).uid
    expect(block(page)).to_have_accessible_name(re.compile("2 held"))
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


def test_the_keyboard_reaches_everything(node, page, expect):
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
    assert page.evaluate(focused).startswith("gpu-mock-0,")  # where it was before


def test_lists_have_one_stop_and_are_moved_through_by_arrows(node, page, expect):
    node.simulate(count=3)
    for name in ("a", "b", "c"):
        node.admit(name).raise_for_rejection()
    pods = page.get_by_role("listbox", name="Pods")
    expect(pods.get_by_role("option")).to_have_count(3)
    assert pods.locator("[tabindex='0']").count() == 1
    pods.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_have_text("Pod b")  # the latest stands first


def test_a_screen_reader_finds_names_roles_and_news(node, page, expect):
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


# -- following what happens --------------------------------------------------------------


def test_plugins_and_events_follow(node, page, expect):
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


def test_a_stopped_kubelet_and_one_that_comes_back(node, page, expect):
    node.simulate(count=2)
    node.admit("a").raise_for_rejection()
    expect(page.locator("#legend")).to_contain_text(re.compile(r"held\s*1"))
    node.kubelet.stop()
    expect(page.locator("#node-facts")).to_contain_text("stopped")
    node.kubelet.start()
    node.kubelet.wait_for_resource(GPU, 2)
    expect(page.locator("#node-facts")).to_contain_text("serving")
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*1\s*held\s*1"))


def test_a_page_finds_a_server_that_comes_back_on_its_address(node, page, expect):
    from devicemanager.observe.web import HttpServer

    where = node.server.address
    node.server.stop()
    expect(page.locator("#connection")).to_contain_text("connection lost")
    node.simulate(count=2)  # nobody could tell the page
    with HttpServer(node.kubelet, where):
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*2"))
        expect(page.get_by_role("button", name="Admit a pod…")).to_be_disabled()
        page.goto("about:blank")  # so that the server need not wait for the stream


def test_a_hidden_page_holds_no_connection_and_catches_up(node, page, expect):
    hide = """(state) => {
      Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, "hidden")
    expect(page.locator("#connection")).to_have_text("paused")
    node.simulate(count=2)
    page.evaluate(hide, "visible")
    expect(page.locator("#legend")).to_contain_text(re.compile(r"free\s*2"))
    assert page.evaluate("performance.getEntriesByName('page:whole').length") == 1  # it went on


def test_finding_dims_the_others_and_counts(node, page, expect):
    node.simulate(count=4, numa=(0,) * 4)
    node.simulate("vendor.com/nic", 2, numa=(0, 0))
    node.admit("train", 3).raise_for_rejection()
    expect(page.locator("#legend")).to_contain_text(re.compile(r"held\s*3"))
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


# -- how it looks ------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_the_systems_and_a_picture_of_it_is_kept(
    node, new_tab, picture, expect, theme
):
    plugin = node.simulate(count=8, numa=(0, 0, 0, 0, 1, 1, 1, 1))
    node.admit("train", 2).raise_for_rejection()
    plugin.set_health(node.ids()[5], False)
    page = new_tab(color_scheme=theme).open(node.address)
    expect(page.locator("#legend")).to_contain_text(re.compile(r"unhealthy\s*1"))
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, re.findall(r"\d+", background)[:3])) > 380
    assert bright is (theme == "light")
    assert picture(page, f"page-{theme}").stat().st_size > 10_000


def test_the_switch_overrules_the_system_and_is_remembered(node, new_tab, expect):
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
def test_nothing_is_wider_than_the_window(node, new_tab, expect, width):
    node.simulate(count=40, numa=(0, 1) * 20)
    page = new_tab(viewport={"width": width, "height": 800}).open(node.address)
    expect(block(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
