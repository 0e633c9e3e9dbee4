"""Where the repository and the shared vectors are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT.parent / "shared" / "vectors"
