"""Names of the packages that are loaded at first use."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.helpers import check_lazy_names


@pytest.mark.parametrize(
    "name", ["devicemanager.testing", "devicemanager.testing.mock_podresources"]
)
def test_lazy_names_can_be_loaded(name: str) -> None:
    check_lazy_names(import_module(name))
