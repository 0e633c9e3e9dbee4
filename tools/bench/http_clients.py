"""Run HTTP clients of a kubelet in a separate process. Arguments: ``ADDRESS [SECONDS]``.

One client reads /metrics every SECONDS seconds, by default every second. Another client reads the
stream of the live page. The process prints "ready" when both have a response, and exits when stdin
is closed.
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
    """Run both clients until stdin is closed."""
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
