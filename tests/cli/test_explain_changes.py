"""Values of the option of explain that changes a setting."""

from __future__ import annotations

import argparse

import pytest

from devicemanager.cli.explain import _what_if

EXPECTED = "expected KEY=VALUE, such as policy=restricted"


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("policy", ""),
        ("policy=", ": use one of none, best-effort, restricted, single-numa-node"),
        ("policy=x", ": use one of none, best-effort, restricted, single-numa-node"),
        ("scope=x", ": use one of container, pod"),
        ("x", ""),
        ("x=", ""),
    ],
)
def test_invalid_change_lists_the_choices(text: str, choices: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        _what_if(text)
    assert str(raised.value) == f"invalid change {text!r}: {EXPECTED}{choices}"


def test_change_is_a_key_with_a_value() -> None:
    assert _what_if("policy=none") == ("policy", "none")
    assert _what_if("x=a=b") == ("x", "a=b")
