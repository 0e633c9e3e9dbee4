"""``python -m tools.screenshots``: take pictures of the live page for the documentation.

Run ``make browser`` first to install the browser's driver. Chromium is also required. The pictures
show generated nodes, each in the light and the dark theme, and are written to docs/images.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devicemanager import MockKubelet, Settings
from devicemanager.control import ControlServer
from devicemanager.observe.web import HttpServer
from devicemanager.testing import pod_manifest
from tools import terminal_picture
from tools.chromium import ARGUMENTS, MISSING, chromium
from tools.terminal_picture import simulate

ROOT = Path(__file__).resolve().parents[1]
DRIVER = ROOT / ".cache" / "browser"
GPU, NIC = "vendor.com/gpu", "vendor.com/nic"
SIZE = {"width": 1440, "height": 900}


@contextlib.contextmanager
def small() -> Iterator[str]:
    """Serve the live page of a node with eight GPUs and four NICs on two NUMA nodes. Some devices
    are allocated, unhealthy or removed."""
    with _served() as (kubelet, address, stack):
        gpus = simulate(stack, kubelet, GPU, 8)
        simulate(stack, kubelet, NIC, 4)
        kubelet.admit(pod_manifest("train", {GPU: 2, NIC: 1}, namespace="ml"))
        kubelet.admit(pod_manifest("serve", {GPU: 1}, namespace="ml"))
        kubelet.admit(pod_manifest("batch", {GPU: 2}))
        kubelet.admit(pod_manifest("greedy", {GPU: 9}))
        gpus.set_health("gpu-mock-0", False)
        gpus.set_health("gpu-mock-6", False)
        gpus.remove("gpu-mock-2")
        kubelet.faults.set("delay-call", rpc="Allocate", seconds=0.2, probability=0.1)
        kubelet.wait_for_resource(GPU, 5)
        yield address


@contextlib.contextmanager
def big() -> Iterator[str]:
    """Serve the live page of a node with 10,000 GPUs and 1,000 pods."""
    with _served() as (kubelet, address, stack):
        gpus = simulate(stack, kubelet, GPU, 10_000)
        for number in range(1000):
            kubelet.admit(pod_manifest(f"train-{number}", {GPU: 3}))
        for number in range(0, 10_000, 97):
            gpus.set_health(f"gpu-mock-{number}", False)
        kubelet.wait_for_resource(GPU, 10_000 - len(range(0, 10_000, 97)))
        yield address


SCENES = {
    "page-8": (small, "#pods .row >> text=ml/train"),
    "page-10000": (big, "#pods .row >> nth=2"),
}
"""Per picture: a context manager that returns the page's URL, and the element to click."""


@contextlib.contextmanager
def _served() -> Iterator[tuple[MockKubelet, str, contextlib.ExitStack]]:
    settings = Settings(node_name="worker-1")
    with contextlib.ExitStack() as stack:
        kubelet = stack.enter_context(MockKubelet(settings=settings))
        control = ControlServer(kubelet)
        server = stack.enter_context(HttpServer(kubelet, "127.0.0.1:0", control=control))
        token = control.token_path.read_text().strip()
        yield kubelet, f"{server.url}/#token={token}", stack


def take(browser: Any, address: str, clicked: str, theme: str, path: Path) -> None:
    """Take a picture of the page when it shows the node."""
    context = browser.new_context(viewport=SIZE, color_scheme=theme)
    try:
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("body[data-serving]")
        page.click(clicked)
        # Wait for the detail, which appears asynchronously: otherwise pictures would differ.
        page.wait_for_selector("#detail:not([hidden])")
        page.screenshot(path=path, animations="disabled")
    finally:
        context.close()
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


def _driver() -> Any:
    if not (DRIVER / ".ready").exists():
        raise SystemExit("the browser driver is not installed: run `make browser` first")
    # The driver has 130 MB. Therefore it is not installed in the project's environment.
    sys.path.append(str(DRIVER))
    from playwright.sync_api import sync_playwright

    return sync_playwright()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--directory", type=Path, default=ROOT / "docs" / "images")
    directory = parser.parse_args().directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    terminal_picture.write(directory)
    path = chromium()
    if path is None:
        raise SystemExit(MISSING)
    with _driver() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        for name, (scene, clicked) in SCENES.items():
            with scene() as address:
                for theme in ("light", "dark"):
                    take(browser, address, clicked, theme, directory / f"{name}-{theme}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
