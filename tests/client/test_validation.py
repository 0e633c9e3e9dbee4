"""Objects of an API server that are malformed."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.client.validation import (
    decoded,
    defect,
    list_items,
    list_metadata,
    version_number,
)

METADATA = {"name": "n", "uid": "u", "resourceVersion": "1"}


def of(**metadata: Any) -> dict[str, Any]:
    return {"metadata": METADATA | metadata}


@pytest.mark.parametrize(
    "good",
    [
        of(),
        of(labels=None, annotations={}, ownerReferences=[], namespace="x"),
        of(labels={"a": "b"}, ownerReferences=[{}]),
        {**of(), "spec": None, "status": None},
        {**of(), "spec": {"nodeName": "n"}, "status": {"conditions": None}},
        {**of(), "status": {"initContainerStatuses": [{}], "containerStatuses": []}},
    ],
)
def test_object_without_a_defect(good: Any) -> None:
    assert defect(good) == ""


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (7, "the value is not an object"),
        ({"metadata": []}, "metadata is not an object"),
        ({}, "metadata.name is not a string"),
        (of(name=""), "metadata.name is not a string"),
        (of(uid=7), "metadata.uid is not a string"),
        (of(resourceVersion=None), "metadata.resourceVersion is not a string"),
        (of(labels="x"), "metadata.labels is not an object"),
        (of(labels={"a": 1}), "metadata.labels has a value that is not a string"),
        (of(annotations={"a": None}), "metadata.annotations has a value that is not a string"),
        (of(ownerReferences={"a": 1}), "metadata.ownerReferences is not a list of objects"),
        (of(ownerReferences=[7]), "metadata.ownerReferences is not a list of objects"),
        (of(namespace=7), "metadata.namespace is not a string"),
        ({**of(), "spec": [1]}, "spec is not an object"),
        ({**of(), "spec": {"nodeName": 7}}, "spec.nodeName is not a string"),
        ({**of(), "status": "x"}, "status is not an object"),
        *(
            ({**of(), "status": {name: [7]}}, f"status.{name} is not a list of objects")
            for name in ("conditions", "initContainerStatuses", "containerStatuses")
        ),
    ],
)
def test_defect_is_named(bad: Any, text: str) -> None:
    assert defect(bad) == text


def test_parts_of_a_list() -> None:
    assert list_metadata({}) == {}
    assert list_metadata({"metadata": {"a": 1}}) == {"a": 1}
    assert list_items({"items": None}) == []
    assert list_items({"items": [1]}) == [1]
    with pytest.raises(ValueError, match=r"^metadata is not an object$"):
        list_metadata({"metadata": 7})
    with pytest.raises(ValueError, match=r"^'items' is not a list$"):
        list_items({"items": "x"})


def test_only_objects_are_decoded() -> None:
    assert decoded(b'{"a": 1}') == {"a": 1}
    with pytest.raises(ValueError, match=r"^not a JSON object$"):
        decoded(b"[]")
    with pytest.raises(ValueError, match=r"^JSON is nested too deeply$"):
        decoded(b"[" * 100_000)


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("9" * 20, 10**20 - 1), ("9" * 21, 0), ("x", 0), ("-1", 0), ("", 0)],
)
def test_version_is_a_number_if_it_has_at_most_20_digits(text: str, number: int) -> None:
    assert version_number({"resourceVersion": text}) == number
