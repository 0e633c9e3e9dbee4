"""``python -m tools.soak``: churn, print a line per lap, and give the verdict."""

import sys

from tools.soak.command import main

if __name__ == "__main__":
    sys.exit(main())
