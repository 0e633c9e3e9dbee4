"""Nothing that a plugin, a manifest or another site says runs in the page or breaks it."""

from __future__ import annotations

import http.server
import re
import threading

import pytest

from .conftest import GPU

IDS = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "__proto__",
    "constructor",
    "a\u202egnp.exe",
    "\u2066\u2067unclosed isolates",
    "שלום עולם",
    "\x1b[31mred\x07\x00\x7f\u0085",
    "line\nbreak\u2028and\u2029more",
    "Z̸̢̧̛͚̱͉̯͍a͎̫̲͘l̷̨̧g͙̮o" * 20,
    "👩‍👩‍👧‍👦" * 50,
    "x" * 10_000,
    "&lt;b&gt;",
    "%2e%2e/..;/?#",
]


def scripts(page):
    return page.evaluate("document.querySelectorAll('script, img, iframe, object, svg').length")


@pytest.fixture
def hostile(node):
    """A plugin whose devices have hostile ids; ``page`` has it open."""
    plugin = node.simulate(count=1, numa=(0,))
    for id_ in IDS:
        plugin.add(id_, numa=(0,))
    node.kubelet.wait_for_resource(GPU, 1 + len(IDS))
    return plugin


def test_hostile_ids_are_text_everywhere(node, hostile, page, expect):
    """Cells, hovering, details, pods' devices, events, the live region, searching."""
    grid = page.get_by_role("grid")
    expect(grid).to_have_accessible_name(re.compile("18 free"))
    before = scripts(page)
    node.admit("all", len(IDS) + 1).raise_for_rejection()
    expect(grid).to_have_accessible_name(re.compile("18 held"))
    grid.get_by_role("gridcell").first.focus()
    page.keyboard.press("Control+Home")
    seen = set()
    for _ in range(len(IDS) + 1):
        page.keyboard.press("Enter")
        seen.add(page.locator("#detail-facts .whole").first.inner_text())
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowRight")
    for text in ["<script>alert(1)</script>", "__proto__", "a\\u202egnp.exe", "x" * 10_000]:
        assert text in seen
    assert any(text.startswith("\\x1b[31mred\\x07\\x00\\x7f\\x85") for text in seen)
    box = grid.bounding_box()
    for x in range(10, 400, 30):
        page.mouse.move(box["x"] + x, box["y"] + 12)
        expect(page.locator("#tip")).to_contain_text(", held by default/all")
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    page.locator("#find").fill("<script>")
    expect(page.locator("#found")).to_have_text("1 device")
    for id_ in node.ids():
        hostile.set_health(id_, False)
    expect(page.locator("#legend")).to_contain_text(re.compile(r"unhealthy\s*18"))
    assert scripts(page) == before


def test_ids_that_control_or_reorder_are_shown_as_escapes_and_kept_apart(
    node, hostile, page, expect
):
    expect(page.get_by_role("grid")).to_be_visible()
    node.admit("all", len(IDS) + 1).raise_for_rejection()
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    expect(page.locator("#detail-facts")).to_contain_text("a\\u202egnp.exe")
    text = page.locator("body").inner_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u0085\u202a-\u202e\u2066-\u2069]", text)
    isolated = page.locator("#detail-facts bdi", has_text="שלום").first
    assert isolated.evaluate("(e) => getComputedStyle(e).unicodeBidi") == "isolate"


def test_ten_thousand_characters_are_cut_and_whole_in_the_details(node, hostile, page, expect):
    node.admit("all", len(IDS) + 1).raise_for_rejection()
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    link = page.get_by_role("button", name=re.compile("^xxxxx"))
    assert len(link.inner_text()) <= 32
    link.click()
    whole = page.locator("#detail-facts .whole").first
    expect(whole).to_have_text("x" * 10_000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert whole.evaluate("(e) => e.clientHeight") < 300


def test_what_plugins_say_elsewhere_is_text_too(node, page, expect):
    """Variables and mounts, an error's text, a socket's name, a fault's text."""
    text = "<img src=x onerror=alert(1)>\u202e"
    node.kubelet.faults.set("fail-call", rpc="Allocate", text=text, times=1)
    plugin = node.simulate(count=1, env_prefix="GPU")
    assert not node.admit("rejected").admitted
    expect(page.get_by_role("listbox", name="Events")).to_contain_text(
        "<img src=x onerror=alert(1)>\\u202e"
    )
    page.get_by_role("listbox", name="Pods").get_by_role("option").first.click()
    expect(page.locator("#detail-facts")).to_contain_text("<img src=x")
    page.get_by_role("listbox", name="Plugins").get_by_role("option").first.click()
    expect(page.locator("#detail-facts")).to_contain_text("<img src=x")
    expect(page.get_by_role("region", name="Faults")).to_contain_text("<img src=x")
    assert plugin is not None and scripts(page) == 1  # main.js


# -- what the browser itself forbids -----------------------------------------------------


@pytest.fixture
def careless(node, new_tab):
    """A tab in which breaking the policy is what the test does."""
    tab = new_tab()
    yield tab.open(node.address)
    assert tab.complaints  # the browser has said so
    tab.complaints.clear()


@pytest.mark.parametrize(
    "attempt",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "eval('1')",
        "new Function('1')()",
        "setTimeout('window.ran = 1', 0); throw new Error('a string is no function')",
        "document.body.setAttribute('onclick', 'window.ran = 1'); document.body.click()"
        "; throw new Error('ran' in window ? '' : 'rejected')",
    ],
)
def test_text_becomes_neither_markup_nor_script(careless, attempt):
    failed = careless.evaluate(
        # Later, since the driver itself may use eval while it evaluates.
        "async () => { await new Promise((done) => setTimeout(done)); try { await (async () => {"
        + attempt
        + "})(); return '' } catch (e) { return String(e) } }"
    )
    assert failed
    assert not careless.evaluate("'ran' in window")


def test_the_page_speaks_to_nobody_else(careless):
    rejected = """async () => {
      try { await fetch("http://127.0.0.1:9/"); return "asked" } catch (e) { return e.name }
    }"""
    assert careless.evaluate(rejected) == "TypeError"
    careless.evaluate(
        "document.head.append(Object.assign(document.createElement('style'), "
        "{ textContent: 'body { display: none }' }))"
    )
    assert careless.evaluate("getComputedStyle(document.body).display") != "none"


# -- other sites -------------------------------------------------------------------------


@pytest.fixture
def other_site():
    """A site with a page of its own, on another port of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_site_reads_and_steers_nothing(node, new_tab, other_site):
    """By fetch with and without CORS, by a form, by a stream; even one that knows the token."""
    tab = new_tab()
    page = tab.page
    page.goto(other_site)
    before = node.kubelet.events.latest
    told = page.evaluate(
        """async ([url, token]) => {
          const said = [];
          const headers = { Authorization: `Bearer ${token}` };
          const tries = [
            [`${url}/`, {}],
            [`${url}/v1/node/restart`, { method: "POST" }],
            [`${url}/v1/node/restart`, { method: "POST", mode: "no-cors" }],
            [`${url}/v1/node/restart`, { method: "POST", headers }],
            [`${url}/page/settings`, { method: "POST", mode: "no-cors", body: "{}" }],
          ];
          for (const [where, how] of tries) {
            try {
              const answer = await fetch(where, how);
              said.push(`${answer.type} ${answer.status} ${await answer.text()}`);
            } catch (e) { said.push(e.name); }
          }
          said.push(await new Promise((done) => {
            const source = new EventSource(`${url}/page/stream`);
            source.onerror = () => { source.close(); done("no stream"); };
            source.addEventListener("whole", () => done("read"));
          }));
          return said;
        }""",
        [node.server.url, node.token],
    )
    assert told[0] == told[1] == told[3] == "TypeError" and told[-1] == "no stream"
    assert told[2] in ("opaque 0 ", "TypeError") and told[4] in ("opaque 0 ", "TypeError")
    page.evaluate(
        """(url) => {
          const form = document.createElement("form");
          Object.assign(form, { action: url, method: "POST" });
          document.body.append(form); form.submit();
        }""",
        f"{node.server.url}/v1/node/restart",
    )
    page.wait_for_load_state()
    assert node.kubelet.events.latest == before
    tab.complaints.clear()


def test_no_other_site_has_the_page_in_a_frame(node, new_tab, other_site):
    tab = new_tab()
    tab.page.goto(other_site)
    tab.page.evaluate(
        """(url) => new Promise((done) => {
          const frame = document.createElement("iframe");
          frame.onload = done; frame.src = url; document.body.append(frame);
        })""",
        node.server.url,
    )
    framed = tab.page.frames[-1]
    assert "127.0.0.1" not in framed.url  # an error page of the browser
    tab.complaints.clear()


def test_a_name_that_points_here_does_not_get_the_page(node, new_tab):
    """DNS rebinding: the address fits, the name does not."""
    port = node.server.address.rpartition(":")[2]
    tab = new_tab()
    answer = tab.page.goto(f"http://rebound.example:{port}/")
    assert answer.status == 403
    assert "Host" in tab.page.inner_text("body")
    told = tab.page.evaluate(
        "async () => (await fetch('/page/stream')).status + ' ' + "
        "(await fetch('/v1/node/restart', { method: 'POST' })).status"
    )
    assert told == "403 403"
