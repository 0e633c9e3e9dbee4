"""Those who look at a kubelet over HTTP, in a process of their own: ``ADDRESS [SECONDS]``.

A scraper that reads /metrics every second, or so many, and a page that is open: a reader of
its stream. Says "ready" when both have had a first answer, and ends with stdin.
"""

from __future__ import annotations

import sys
import threading
import urllib.request
from collections.abc import Sequence
from typing import Final

_TIMEOUT: Final = 30


def _scrape(url: str, seconds: float, ready: threading.Event) -> None:
    pause = threading.Event()
    while True:
        with urllib.request.urlopen(f"{url}/metrics", timeout=_TIMEOUT) as answer:
            answer.read()
        ready.set()
        pause.wait(seconds)


def _watch(url: str, ready: threading.Event) -> None:
    with urllib.request.urlopen(f"{url}/page/stream", timeout=_TIMEOUT) as stream:
        for _ in stream:
            ready.set()


def main(arguments: Sequence[str]) -> None:
    """Look on until stdin ends."""
    url = f"http://{arguments[0]}"
    seconds = float(arguments[1]) if len(arguments) > 1 else 1.0
    first = [threading.Event(), threading.Event()]
    for work in (
        threading.Thread(target=_scrape, args=(url, seconds, first[0]), daemon=True),
        threading.Thread(target=_watch, args=(url, first[1]), daemon=True),
    ):
        work.start()
    if all(each.wait(_TIMEOUT) for each in first):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
