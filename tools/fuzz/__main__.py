"""``python -m tools.fuzz``: fuzz, and tell what was found."""

import sys

from tools.fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())
