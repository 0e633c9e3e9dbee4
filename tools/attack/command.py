"""Run the command ``devicemanager`` in a process of an attack, with a planted bug if one is
selected."""

from __future__ import annotations

import sys

from devicemanager.cli import main
from tools.harness.planted import apply

if __name__ == "__main__":
    apply()
    sys.exit(main())
