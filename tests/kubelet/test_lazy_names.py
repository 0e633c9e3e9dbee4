"""Names of the package that are loaded at first use."""

from __future__ import annotations

from devicemanager import kubelet
from tests.helpers import check_lazy_names


def test_lazy_names_can_be_loaded() -> None:
    check_lazy_names(kubelet)
