"""The words for faults of an alignment, which are part of the JSON output."""

from __future__ import annotations

from devicemanager.core.explanation.model import AlignmentFault


def test_words_of_faults() -> None:
    assert {fault.name: fault.value for fault in AlignmentFault} == {
        "FITS_NOWHERE": "fits nowhere",
        "SPREAD": "spread",
        "WIDE": "wide",
        "NO_COMMON_NODES": "no common nodes",
    }
