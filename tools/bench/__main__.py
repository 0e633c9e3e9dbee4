"""``python -m tools.bench``: measure, and print a table."""

import sys

from tools.bench.command import main

if __name__ == "__main__":
    sys.exit(main())
