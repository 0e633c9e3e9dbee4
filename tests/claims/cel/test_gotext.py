"""Texts of Go's packages fmt and strconv."""

import pytest

from devicemanager.claims.cel.gotext import quote


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a\u00e9'", "a\u00e9'"),
        ("\a\b\f\n\r\t\v", r"\a\b\f\n\r\t\v"),
        ('\\"', r"\\\""),
        ("\0\x7f", r"\x00\x7f"),
        ("\u200b\U000e0001", r"\u200b\U000e0001"),
    ],
)
def test_quoted_text_has_the_escapes_of_go(text, quoted):
    assert quote(text) == f'"{quoted}"'
