"""``python -m tools.power``: record, replay every power failure, and report."""

import sys

from tools.power.command import main

if __name__ == "__main__":
    sys.exit(main())
