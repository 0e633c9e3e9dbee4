"""Metrics page of a client: read it periodically, parse it, and compare two of its states."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping

import attrs

from devicemanager.conformance.outcomes import Failed, Skipped

__all__ = ["ABOUT_THE_PROGRAM", "Page", "Samples", "Scraper", "parsed"]

Samples = dict[str, float]
"""Mapping from the name and labels of a sample, as text, to its value."""

ABOUT_THE_PROGRAM = ("dotnet_", "go_", "jvm_", "nodejs_", "process_", "promhttp_", "python_")
"""Prefixes of the names of samples that the client libraries of Prometheus add. These samples are
about memory, garbage collection and reads of the page. They change even if the pods do not
change."""
# The page comes from the program under test, and may never end.
_LONGEST_PAGE = 64 << 20


@attrs.frozen
class Page:
    """Result of one read of a metrics page: its content or an error."""

    text: str
    """Content of the page; empty if it could not be read."""
    error: str
    """Reason why the page could not be read; empty if the page was read."""


def parsed(text: str) -> Samples:
    """Return the samples of a page in Prometheus' text format.

    Raises Failed if the page is invalid, and Skipped if the parser is not installed.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise Skipped(
            "prometheus-client is not installed: pip install 'kubelet-devicemanager[conformance]'"
        ) from None
    try:
        samples = [
            (_name(sample.name, sample.labels), float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    # The parser has no error class of its own.
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise Failed(f"the metrics page is invalid: {error}") from None
    # A Prometheus server drops the whole page because of one repeated sample.
    repeated = [name for name, count in Counter(name for name, _ in samples).items() if count > 1]
    if repeated:
        raise Failed(f"the metrics page has the sample {repeated[0]} more than once")
    return dict(samples)


def _name(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name


class Scraper:
    """Thread that reads a client's metrics page periodically. Many clients query PodResources only
    when their page is read."""

    def __init__(self, url: str, every: float, timeout: float) -> None:
        self._url = url
        self._every = every
        self._timeout = timeout
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._pages = 0
        self._last = Page("", "the page was not read yet")
        self._thread = threading.Thread(target=self._read, name="scraper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading the page. A read in progress ends at its timeout."""
        self._stop.set()

    @property
    def count(self) -> int:
        """Number of reads so far, whether they succeeded or not."""
        return self._pages

    @property
    def last(self) -> Page:
        """Page of the latest read. Before the first read, it has an error text."""
        with self._lock:
            return self._last

    def _read(self) -> None:
        while not self._stop.wait(self._every):
            page = self._page()
            with self._lock:
                # The page first: checks wait for the number, and then take the page.
                self._last = page
                self._pages += 1

    def _page(self) -> Page:
        begin = time.monotonic()
        try:
            with urllib.request.urlopen(self._url, timeout=self._timeout) as response:
                return Page(response.read(_LONGEST_PAGE).decode(), "")
        except urllib.error.HTTPError as error:
            return Page("", f"status {error.code}")
        except TimeoutError:
            return Page("", f"no response within {time.monotonic() - begin:.0f} s")
        except UnicodeDecodeError as error:
            return Page("", f"not UTF-8: {error}")
        except (OSError, http.client.HTTPException) as error:
            return Page("", str(error))
