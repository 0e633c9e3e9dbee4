"""The supervisor as a process of its own, for whoever starts plugins from a program."""

from __future__ import annotations

import sys
from typing import NoReturn

from devicemanager.plugin.processes.plan import decode
from devicemanager.plugin.processes.supervisor import end_as, supervise


def main() -> NoReturn:
    """Run the plan that is the only argument, as ``plan.encode`` writes it."""
    end_as(supervise(decode(sys.argv[1])))


if __name__ == "__main__":
    main()
