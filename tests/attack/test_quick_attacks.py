"""Run the quick attacks of ``make attack``; only that command also judges how long they take."""

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


@pytest.mark.parametrize("name", QUICK)
def test_attack_finds_no_problem(name):
    (attack,) = (each for each in attacks() if each.name == name)
    assert attack.run().problems == ()
