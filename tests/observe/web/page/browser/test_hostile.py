"""Text of plugins and manifests never runs in the page, and other sites cannot use it."""

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
    """A plugin whose devices have hostile IDs."""
    plugin = node.simulate(count=1, numa=(0,))
    for id_ in IDS:
        plugin.add(id_, numa=(0,))
    node.kubelet.wait_for_resource(GPU, 1 + len(IDS))
    return plugin


def test_hostile_ids_are_text_everywhere(node, hostile, page, expect):
    """In cells, tips, details, devices of pods, events, the live region and the search."""
    grid = page.get_by_role("grid")
    expect(grid).to_have_accessible_name(re.compile("18 free"))
    before = scripts(page)
    node.admit("all", len(IDS) + 1).raise_for_rejection()
    expect(grid).to_have_accessible_name(re.compile("18 allocated"))
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
        expect(page.locator("#tip")).to_contain_text(", allocated to default/all")
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    page.locator("#find").fill("<script>")
    expect(page.locator("#found")).to_have_text("1 device")
    for id_ in node.ids():
        hostile.set_health(id_, False)
    expect(page.locator("#legend")).to_contain_text(re.compile(r"unhealthy\s*18"))
    assert scripts(page) == before


def test_control_and_bidi_characters_are_escaped_and_isolated(node, hostile, page, expect):
    expect(page.get_by_role("grid")).to_be_visible()
    node.admit("all", len(IDS) + 1).raise_for_rejection()
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    expect(page.locator("#detail-facts")).to_contain_text("a\\u202egnp.exe")
    text = page.locator("body").inner_text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u0085\u202a-\u202e\u2066-\u2069]", text)
    # In one step: an update replaces the elements, and a removed one has no computed style.
    isolated = page.evaluate(
        """() => [...document.querySelectorAll("#detail-facts bdi")]
          .filter((element) => element.textContent.includes("שלום"))
          .map((element) => getComputedStyle(element).unicodeBidi)"""
    )
    assert isolated and set(isolated) == {"isolate"}


def test_long_id_is_cut_in_lists_and_whole_in_details(node, hostile, page, expect):
    node.admit("all", len(IDS) + 1).raise_for_rejection()
    page.get_by_role("listbox", name="Pods").get_by_role("option").click()
    link = page.get_by_role("button", name=re.compile("^xxxxx"))
    # On one line, as long as there is room for it.
    assert 32 < len(link.inner_text()) <= 400
    assert link.evaluate("(e) => e.clientHeight") < 40
    assert link.evaluate("(e) => e.offsetWidth <= e.parentElement.offsetWidth")
    link.click()
    whole = page.locator("#detail-facts .whole").first
    expect(whole).to_have_text("x" * 10_000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert whole.evaluate("(e) => e.clientHeight") < 300


def test_hostile_errors_and_settings_are_text(node, page, expect):
    """In variables, mounts, errors, socket names and faults."""
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
    """A tab for a test that violates the policy on purpose."""
    tab = new_tab()
    yield tab.open(node.address)
    assert tab.complaints  # the browser reported the violation
    tab.complaints.clear()


@pytest.mark.parametrize(
    "attempt",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "eval('1')",
        "new Function('1')()",
        "setTimeout('window.ran = 1', 0); throw new Error('not a function')",
        "document.body.setAttribute('onclick', 'window.ran = 1'); document.body.click()"
        "; throw new Error('ran' in window ? '' : 'rejected')",
    ],
)
def test_policy_forbids_markup_and_script_from_text(careless, attempt):
    failed = careless.evaluate(
        # Later, because the driver itself may use eval while it evaluates.
        "async () => { await new Promise((done) => setTimeout(done)); try { await (async () => {"
        + attempt
        + "})(); return '' } catch (e) { return String(e) } }"
    )
    assert failed
    assert not careless.evaluate("'ran' in window")


def test_policy_forbids_other_hosts_and_inline_styles(careless):
    rejected = """async () => {
      try { await fetch("http://127.0.0.1:9/"); return "connected" } catch (e) { return e.name }
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
    """A site with another page, on another port of this machine."""

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


def test_other_site_reads_and_changes_nothing(node, new_tab, other_site):
    """With fetch (with and without CORS), a form and a stream, even if it knows the token."""
    tab = new_tab()
    page = tab.page
    page.goto(other_site)
    before = node.kubelet.events.latest
    results = page.evaluate(
        """async ([url, token]) => {
          const results = [];
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
              results.push(`${answer.type} ${answer.status} ${await answer.text()}`);
            } catch (e) { results.push(e.name); }
          }
          results.push(await new Promise((done) => {
            const source = new EventSource(`${url}/page/stream`);
            source.onerror = () => { source.close(); done("no stream"); };
            source.addEventListener("whole", () => done("read"));
          }));
          return results;
        }""",
        [node.server.url, node.token],
    )
    assert results[0] == results[1] == results[3] == "TypeError" and results[-1] == "no stream"
    assert {results[2], results[4]} <= {"opaque 0 ", "TypeError"}
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


def test_page_cannot_be_framed_by_other_site(node, new_tab, other_site):
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
    assert "127.0.0.1" not in framed.url  # the browser's error page
    tab.complaints.clear()


def test_rebound_dns_name_does_not_get_the_page(node, new_tab):
    """DNS rebinding: the request has the right address and a wrong Host."""
    port = node.server.address.rpartition(":")[2]
    tab = new_tab()
    answer = tab.page.goto(f"http://rebound.example:{port}/")
    assert answer.status == 403
    assert "Host" in tab.page.inner_text("body")
    statuses = tab.page.evaluate(
        "async () => (await fetch('/page/stream')).status + ' ' + "
        "(await fetch('/v1/node/restart', { method: 'POST' })).status"
    )
    assert statuses == "403 403"
