"""Locations of the repository and of the recorded vectors.

The full sets of vectors are beside the repository, or where DEVICEMANAGER_VECTORS points. Where
they are missing, as in a plain clone, tests use the sample in ``tests/data/vectors``, which
``tools/vector_sample.py`` has chosen from them. Tests that replay vectors take a directory from
``VECTOR_SETS``, so that their ids show which sets have been used.
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
