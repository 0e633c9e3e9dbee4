"""``python -m tools.stress``: do everything at once, check in between, give the verdict."""

import sys

from tools.stress.command import main

if __name__ == "__main__":
    sys.exit(main())
