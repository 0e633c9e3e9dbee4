"""``python -m tools.damage``: damage files, and tell what came of it."""

import sys

from tools.damage.command import main

if __name__ == "__main__":
    sys.exit(main())
