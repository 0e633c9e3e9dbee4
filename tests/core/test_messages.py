"""Texts as Go's formatting writes them."""

import pytest

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
def test_a_quoted_text_is_escaped_as_percent_q_does(text, quoted):
    assert go_quoted(text) == quoted
