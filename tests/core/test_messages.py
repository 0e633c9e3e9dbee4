"""Texts in Go's format."""

import pytest

from devicemanager.core import messages
from devicemanager.core.messages import go_quoted


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
