"""A large node: 10,000 devices and 1,000 pods.

Times depend on the machine, so they are recorded and not asserted.
"""

from __future__ import annotations

import json
import re

import pytest

from .conftest import GPU, PICTURES

DEVICES, PODS = 10_000, 1_000
OBSERVER = """
  window.longTasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) longTasks.push(entry.duration);
  }).observe({ type: "longtask", buffered: true });
"""
FRAMES = """(work) => new Promise((done) => {
  const gaps = []; let last = performance.now(); let left = 60;
  const frame = (now) => {
    gaps.push(now - last); last = now;
    document.querySelector("#pods").scrollTop += 300;
    document.querySelector("#devices").scrollTop += 40;
    if (--left) requestAnimationFrame(frame); else done(gaps.slice(1));
  };
  requestAnimationFrame(frame);
})"""


@pytest.fixture
def big(node):
    node.simulate(count=DEVICES, numa=tuple(n * 2 // DEVICES for n in range(DEVICES)))
    for number in range(PODS):
        node.admit(f"train-{number}", 3).raise_for_rejection()
    return node


def measures(page, name):
    times = page.evaluate(
        "(name) => performance.getEntriesByName(name).map((m) => [m.duration, m.startTime])", name
    )
    return [duration for duration, _ in times], [start + took for took, start in times]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_of_large_node_has_few_elements_and_updates(big, new_tab, picture, expect, theme):
    tab = new_tab(color_scheme=theme)
    tab.page.context.add_init_script(OBSERVER)
    page = tab.open(big.address)
    legend = page.locator("#legend")
    expect(legend).to_contain_text(re.compile(r"free\s*7,000\s*allocated\s*3,000"))
    assert picture(page, f"page-{theme}-10000").stat().st_size > 10_000
    assert page.evaluate("document.querySelectorAll('*').length") < 1000
    (whole,), (first,) = measures(page, "page:whole")
    for number in range(20):
        big.admit(f"late-{number}", 1).raise_for_rejection()
        expect(legend).to_contain_text(re.compile(rf"allocated\s*{3001 + number:,}"))
    expect(page.locator("#pods-count")).to_have_text(f"{PODS + 20:,}")
    updates, _ = measures(page, "page:update")
    gaps = page.evaluate(FRAMES)
    figures = {
        "devices": DEVICES,
        "pods": PODS,
        "first_draw_ms": round(first),
        "whole_ms": round(whole),
        "update_ms_median": round(sorted(updates)[len(updates) // 2], 1),
        "update_ms_longest": round(max(updates), 1),
        "long_tasks_ms": [round(each) for each in page.evaluate("longTasks")],
        "frame_ms_median_scrolling": round(sorted(gaps)[len(gaps) // 2], 1),
        "frame_ms_longest_scrolling": round(max(gaps), 1),
    }
    (PICTURES / f"figures-{theme}.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(figures)


@pytest.mark.timeout(300)
def test_large_node_is_searchable_and_usable_by_keyboard(big, new_tab, expect):
    page = new_tab().open(big.address)
    grid = page.get_by_role("grid").first
    expect(grid).to_have_attribute("aria-rowcount", re.compile(r"^\d+$"))
    page.locator("#find").fill("train-999")
    expect(page.locator("#found")).to_have_text("3 devices")
    page.get_by_role("listbox", name="Pods").get_by_role("option").first.click()
    allocated = sorted(big.kubelet.devices(big.kubelet.events.recent()[-1].pod)["main"][GPU])
    page.get_by_role("button", name=allocated[0]).click()
    expect(page.locator("#detail-title")).to_have_text(f"Device {allocated[0]}")
    grid.get_by_role("gridcell").first.focus()
    page.keyboard.press("Control+End")
    last = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert last == "gpu-mock-4999, free"
    assert page.evaluate(
        """() => {
          const box = document.activeElement.getBoundingClientRect();
          const seen = document.querySelector("#devices").getBoundingClientRect();
          return box.top >= seen.top && box.bottom <= seen.bottom + 1;
        }"""
    )
