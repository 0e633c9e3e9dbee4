"""``python -m tools.attack``: attack, and print a table."""

import sys

from tools.attack.command import main

if __name__ == "__main__":
    sys.exit(main())
