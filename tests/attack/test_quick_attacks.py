"""Attacks that are over quickly: each promise is kept. How long that takes is judged by
``make attack`` alone."""

import pytest

from tools.attack.registry import attacks

QUICK = [
    "checkpoint-nested",
    "checkpoint-digits",
    "checkpoint-zero",
    "escape-sequences",
    "file-size",
    "manifest-bomb",
    "manifest-zero",
    "cdi-bomb-annotations",
    "cdi-nested",
    "cdi-tag",
]


@pytest.mark.parametrize("name", QUICK)
def test_every_promise_is_kept(name):
    (attack,) = (each for each in attacks() if each.name == name)
    assert attack.run().problems == ()
