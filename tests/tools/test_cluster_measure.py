"""``python -m tools.cluster.measure``: the number of objects on an API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tools.cluster.measure import _count


def counted(items: int, **metadata: Any) -> int:
    page = {"items": [{}] * items, "metadata": metadata}
    api: Any = SimpleNamespace(request=lambda *_arguments, **_options: page)
    return _count(api, "/api/v1/nodes")


def test_first_page_and_the_objects_that_follow_are_counted() -> None:
    assert (counted(0), counted(1)) == (0, 1)
    assert counted(1, **{"continue": "token"}, remainingItemCount=7) == 8


def test_page_without_the_number_of_objects_that_follow_is_an_error() -> None:
    with pytest.raises(KeyError, match="no remainingItemCount in the list /api/v1/nodes"):
        counted(1, **{"continue": "token"})
