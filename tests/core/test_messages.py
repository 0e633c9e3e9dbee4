"""Texts in Go's format."""

import pytest

from devicemanager.core import messages
from devicemanager.core.messages import go_printed, go_quoted


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain é", '"plain é"'),
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ("a\nb", r'"a\nb"'),
        ("a\tb", r'"a\tb"'),
        ("a\rb", r'"a\rb"'),
        ("\a\0\x7f", r'"\a\x00\x7f"'),
        ("\u200b\U000e0001", r'"\u200b\U000e0001"'),
        ("", '""'),
    ],
)
def test_quoted_text_is_escaped_as_in_go(text, quoted):
    assert go_quoted(text) == quoted


def test_rejection_reasons_are_the_kubelets():
    assert messages.TOPOLOGY_AFFINITY_ERROR == "TopologyAffinityError"
    assert messages.UNEXPECTED_ADMISSION_ERROR == "UnexpectedAdmissionError"


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"b": True, "a": [1, "x", ()], "c": None}, "map[a:[1 x []] b:true c:<nil>]"),
        ({}, "map[]"),
        ((False, 1.5, {"k": {}}), "[false 1.5 map[k:map[]]]"),
        ("text", "text"),
        (0, "0"),
    ],
)
def test_json_is_printed_as_in_go(value, printed):
    assert go_printed(value) == printed
