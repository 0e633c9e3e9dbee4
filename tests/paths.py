"""Locations of the repository and of the recorded vectors.

The full sets of vectors are in ``shared`` beside the repository, or in DEVICEMANAGER_VECTORS. A
plain clone has only the sample in ``tests/data/vectors``, chosen by ``tools/vector_sample.py``.
Tests that replay vectors are parametrized with ``VECTOR_SETS``: their IDs show which were used.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SAMPLE = ROOT / "tests" / "data" / "vectors"
FULL = Path(os.environ.get("DEVICEMANAGER_VECTORS", ROOT.parent / "shared" / "vectors"))
VECTORS = FULL if (FULL / "admission.jsonl").exists() else SAMPLE
"""The larger of the sets that exist."""
VECTOR_SETS = [
    pytest.param(directory, id="full" if directory is FULL else "sample")
    for directory in dict.fromkeys((SAMPLE, VECTORS))
]
"""Parameters for tests that replay vectors: the sample always, and the full sets if they exist."""
