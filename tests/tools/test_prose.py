"""tools.prose finds marker words where people read them, and its list of exceptions shrinks."""

from collections import Counter

import pytest

from tools.prose.__main__ import accepted, hits, problems
from tools.prose.markers import MARKERS
from tools.prose.texts import texts

EXAMPLES = {
    "tell": "The service tells less than it knows.",
    "nobody": "Devices that nobody holds.",
    "anew": "The file is written anew.",
    "besides": "Besides, it fails.",
    "is-no": "'x' is no version.",
    "there-is-not": "a status code that there is not",
    "so-many": "after so many seconds",
    "look-at": "Everything is looked at first.",
    "mend": "Mend a device.",
    "idiom": "where a token is at hand",
    "bear": "The kubelet bears a restart.",
    "whatever": "whatever the plugin sends",
    "under-way": "a call that is under way",
}


def found(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return [(hit.line, hit.marker) for hit in hits([path], tmp_path)]


def test_every_marker_has_an_example():
    assert set(EXAMPLES) == set(MARKERS)


@pytest.mark.parametrize("marker", EXAMPLES)
def test_marker_word_is_found(tmp_path, marker):
    assert found(tmp_path, "page.md", f"A heading\n\n{EXAMPLES[marker]}\n") == [(3, marker)]


@pytest.mark.parametrize(
    "sentence",
    [
        "A test tells apart the two kinds.",
        "There is no device left.",
        "The pod is no longer active.",
        "The look of the page is plain.",
    ],
)
def test_plain_sentence_is_accepted(tmp_path, sentence):
    assert found(tmp_path, "page.md", sentence) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""Nobody reads it."""\n', 1),
        ("x = 1\nraise ValueError('nobody answers')\n", 2),
        ("x = 1\n# nobody waits\n", 2),
        ("def test_nobody_waits():\n    pass\n", 1),
    ],
)
def test_module_is_read_where_people_read_it(tmp_path, source, line):
    assert found(tmp_path, "module.py", source) == [(line, "nobody")]


@pytest.mark.parametrize("source", ["nobody = 1\n", "x = {'nobody': 1}\n"])
def test_code_is_not_read(tmp_path, source):
    assert found(tmp_path, "module.py", source) == []


def test_fenced_block_is_not_read(tmp_path):
    assert found(tmp_path, "page.md", "```text\nnobody\n```\nnobody\n") == [(4, "nobody")]


def test_script_is_read_as_lines(tmp_path):
    path = tmp_path / "page.js"
    path.write_text("// one\n// two\n")
    assert list(texts(path)) == [(1, "// one"), (2, "// two")]


def test_hit_names_place_and_replacement(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("written anew\n")
    [hit] = hits([path], tmp_path)
    assert str(hit) == "page.md:1: anew: written anew (write: again, or a verb with re-)"


def test_accepted_words_are_no_problem(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("anew\nanew\n")
    pair = hits([path], tmp_path)
    assert problems(pair, accepted("# a comment\n\npage.md anew 2\n")) == []
    # One more than accepted: all places are shown, because any of them can be the new one.
    assert problems(pair, accepted("page.md anew 1\n")) == [str(hit) for hit in pair]


def test_list_of_accepted_words_must_shrink():
    assert problems([], Counter({("page.md", "anew"): 1})) == [
        "accepted.txt: page.md anew 1: only 0 left, lower it"
    ]
