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
        ("", '""'),
    ],
)
def test_quoted_text_is_escaped_as_in_go(text, quoted):
    assert go_quoted(text) == quoted


def test_rejection_reasons_are_the_kubelets():
    assert messages.TOPOLOGY_AFFINITY_ERROR == "TopologyAffinityError"
    assert messages.UNEXPECTED_ADMISSION_ERROR == "UnexpectedAdmissionError"
