"""Render metrics as Prometheus text, with the names that the kubelet uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from devicemanager.core.printable import one_line

__all__ = ["CONTENT_TYPE", "text_of"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def text_of(collector: Collector) -> bytes:
    """Render the metrics of a collector as Prometheus text. Omit families without values.

    ``prometheus_client`` writes the name of every counter with the suffix ``_total`` in HELP and
    TYPE lines. For a counter without this suffix in the kubelet, the suffix is removed again.
    """
    # The kubelet omits a metric without values, but the library would show its HELP and TYPE.
    families = [family for family in collector.collect() if family.samples]
    # With this line break, the first line matches below, too. It is removed at the end.
    text = b"\n" + generate_latest(_Collected(families))
    for family in families:
        if family.type == "counter" and family.samples[0].name == family.name:
            name = family.name.encode()
            for word in (b"HELP", b"TYPE"):
                # The line break makes the match safe: label values cannot contain an unescaped one.
                head = b"\n# " + word + b" " + name
                text = text.replace(head + b"_total ", head + b" ", 1)
    return text[1:]


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families
        for family in families:
            # The library escapes only quotes, backslashes and line ends.
            family.samples = [
                each
                if all(value.isprintable() for value in each.labels.values())
                else each._replace(
                    labels={name: one_line(value) for name, value in each.labels.items()}
                )
                for each in family.samples
            ]

    def collect(self) -> Iterable[Metric]:
        return self._families
