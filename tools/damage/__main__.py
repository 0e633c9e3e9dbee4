"""``python -m tools.damage``: damage files and check the results."""

import sys

from tools.damage.command import main

if __name__ == "__main__":
    sys.exit(main())
