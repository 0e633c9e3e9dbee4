"""The page and the terminal use one set of symbols, and escape the same characters."""

import json
import re
import shutil
import subprocess

import pytest

from devicemanager.core import printable
from devicemanager.observe.terminal.text import UNICODE
from devicemanager.observe.view.devices import DeviceState
from tests.paths import ROOT

STATIC = ROOT / "devicemanager/observe/web/page/static"
DRAWN_BY = {"□": "square", "■": "square", "◐": "circle", "▲": "triangle", "✗": "cross"}
"""For each symbol of the terminal, the function of the page that draws the outline."""


def drawing(state):
    """Return the code that draws a state of a device."""
    code = (STATIC / "shapes.js").read_text()
    return re.search(rf'^  "?{state}"?\(pen, size\) {{\n(.*?)^  }},', code, re.M | re.S)[1]


@pytest.mark.parametrize("state", DeviceState, ids=lambda state: state.value)
def test_page_draws_the_symbol_of_the_terminal(state):
    symbol = UNICODE.states[state]
    assert f"{DRAWN_BY[symbol]}(pen" in drawing(state.name.lower())
    # □ is empty, all others are filled, except the lines of ✗.
    assert ("pen.fill()" in drawing(state.name.lower())) is (symbol in "■◐")


def test_no_other_list_uses_a_symbol_of_a_device_state():
    lists = (STATIC / "lists.js").read_text()
    assert not set(UNICODE.states.values()) & set(re.sub(r"[✗]", "", lists))


def test_names_are_cut_only_where_there_is_no_room():
    detail, style = (STATIC / "detail.js").read_text(), (STATIC / "style.css").read_text()
    assert "const WIDEST = 400;" in detail
    # Titles and links to devices are not cut to fewer characters. The style sheet cuts them.
    assert detail.count(", said(id, WIDEST))") == 2
    assert (
        len(
            re.findall(
                r'title = make\("span", {}, "(?:Device|Pod|Plugin) ", said\(.*, WIDEST\)\);', detail
            )
        )
        == 3
    )
    for selector in (r"\.detail h2", r"button\.link"):
        assert re.search(selector + r" {[^}]*overflow: hidden; text-overflow: ellipsis;", style)


def test_buttons_of_faults_stay_on_one_line():
    style = (STATIC / "style.css").read_text()
    assert re.search(r"\.row\.still button {[^}]*white-space: nowrap;[^}]*flex: none;", style)


def test_messages_keep_their_width_in_a_narrow_window():
    style = (STATIC / "style.css").read_text()
    narrow = style.partition("@media (max-width: 600px)")[2].partition("\n}\n")[0]
    assert ".events .row time { display: none; }" in narrow
    assert re.search(r"\.events \.row \.kind {[^}]*max-width", narrow)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_page_escapes_what_the_terminal_escapes(tmp_path):
    blocks = [range(start, start + 256) for start in range(0, 0x110000, 256)]
    texts = [("".join(map(chr, block)), block) for block in blocks]
    # Most blocks have no character that is escaped.
    changed = [block for text, block in texts if printable.one_line(text) != text]
    codes = [n for block in changed for n in block if printable.one_line(chr(n)) != chr(n)]
    escaped = {code: printable.one_line(chr(code)) for code in codes if code != 0x0A}
    script = tmp_path / "text.mjs"
    script.write_text((STATIC / "text.js").read_text())
    program = tmp_path / "run.mjs"
    program.write_text(
        'import { whole } from "./text.mjs";\n'
        "const found = {};\n"
        "for (let code = 0; code < 0x110000; code++) {\n"
        "  const text = String.fromCodePoint(code);\n"
        "  if (whole(text) !== text) found[code] = whole(text);\n"
        "}\n"
        "console.log(JSON.stringify(found));\n"
    )
    done = subprocess.run(["node", program], capture_output=True, text=True, check=True)
    found = {int(code): text for code, text in json.loads(done.stdout).items()}
    found.pop(0x0A)
    assert found == escaped
