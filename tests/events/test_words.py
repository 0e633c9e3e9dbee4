"""Words of enums, which are part of the API: of JSON, of flags and of files."""

from __future__ import annotations

from devicemanager import events
from tests.helpers import own_words


def test_words_are_the_names_in_lower_case() -> None:
    assert own_words(events) == {}
