"""Metrics as text, in the form and with the names that the kubelet has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "text_of"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def text_of(collector: Collector) -> bytes:
    """The metrics of a registry, without families that have no value.

    The library ends the name of every counter in ``_total`` where it tells the type; the
    kubelet has counters that are called otherwise.
    """
    families = [family for family in collector.collect() if family.samples]
    text = b"\n" + generate_latest(_Collected(families))
    for family in families:
        if family.type == "counter" and family.samples[0].name == family.name:
            name = family.name.encode()
            for word in (b"HELP", b"TYPE"):
                # With the line's beginning: no value of a label can look like that.
                told = b"\n# " + word + b" " + name
                text = text.replace(told + b"_total ", told + b" ", 1)
    return text[1:]


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
