"""Text with several objects, and hostile text."""

import json

import pytest

from devicemanager.claims.errors import InvalidObject
from devicemanager.claims.v1alpha1.reading import read_object, read_text
from devicemanager.claims.v1alpha1.writing import to_yaml, write_object
from tests.claims.documents import claim, config, device_class, pool

OBJECTS = [read_object(each) for each in (pool(), device_class(), claim(), config(spec={"a": "ü"}))]


def test_read_text_reads_several_documents():
    assert read_text(to_yaml(OBJECTS)) == tuple(OBJECTS)


@pytest.mark.parametrize("found", OBJECTS, ids=lambda each: type(each).__name__)
def test_read_text_reads_json(found):
    assert read_text(json.dumps(write_object(found))) == (found,)


def test_list_stands_for_its_items():
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pool(), claim()]})
    assert read_text(text) == (OBJECTS[0], OBJECTS[2])


def test_empty_documents_are_skipped():
    assert read_text("---\n---\n# nothing\n") == ()


def test_every_line_names_the_file():
    text = f"{json.dumps(claim('X'))}\n---\n{json.dumps(pool(driver=''))}\n---\n7\n"
    with pytest.raises(InvalidObject) as caught:
        read_text(text, "claims/a.yaml")
    assert [line.split(": ", 2)[:2] for line in caught.value.lines] == [
        ["claims/a.yaml", 'DeviceClaim "default/X"'],
        ["claims/a.yaml", 'DevicePool "p"'],
        ["claims/a.yaml", "must be a mapping with apiVersion and kind, not the number 7"],
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (BOMB, "more than 1000000 values after aliases are expanded"),
        ("[" * 1000, "nested more than 100 levels deep"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("!!timestamp x", "a value cannot be read"),
        ("a: [", "line 2, column 1"),
        ("kind: a\nkind: b", 'line 2: key "kind" already set in map'),
        ("x" * (8 * 1024 * 1024 + 1), "larger than 8388608 characters"),
    ],
    ids=["aliases", "depth", "object", "tag", "syntax", "key", "size"],
)
def test_hostile_texts_are_one_line_errors(text, complaint):
    with pytest.raises(InvalidObject) as caught:
        read_text(text, "f.yaml")
    (line,) = caught.value.lines
    assert line.startswith("f.yaml: ") and complaint in line and line.isprintable()
