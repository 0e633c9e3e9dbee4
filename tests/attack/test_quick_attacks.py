"""The quick attacks must break no promise. Only ``make attack`` also judges times and usage."""

import pytest

from tools.attack.registry import attacks

QUICK = [
    "link-device-plugins",
    "link-root",
    "link-itself",
    "shared-directory",
    "leftover-sockets",
    "umask-0",
    "checkpoint-sparse",
    "checkpoint-repeated-keys",
    "checkpoint-digits",
    "checkpoint-fifo",
    "descriptors-8",
    "descriptors-24",
    "descriptors-40",
    "manifest-fifo",
    "manifest-bomb",
    "manifest-hung",
    "cdi-bomb-kind",
    "cdi-zero",
    "cdi-sparse",
    "cdi-tag",
    "output-unread",
    "escape-sequences",
    "fork-exit",
    "file-size",
]


FEWER = {"output-unread": ("tools.attack.output._EVENTS", 1000)}
"""Smaller numbers, which still reach the limit that the attack is about."""


@pytest.mark.parametrize("name", QUICK)
def test_attack_breaks_no_promise(name, monkeypatch):
    if name in FEWER:
        monkeypatch.setattr(*FEWER[name])
    (attack,) = (each for each in attacks() if each.name == name)
    assert attack.run().problems == ()
