"""Main program of the supervisor process, which ``SupervisedRun`` starts."""

from __future__ import annotations

import sys
from typing import NoReturn

from devicemanager.plugin.processes.supervisor import Supervision, end_as, supervise


def main() -> NoReturn:
    """Run and supervise the command in ``sys.argv[1]``, which ``Supervision.encode`` encoded."""
    end_as(supervise(Supervision.decode(sys.argv[1])))


if __name__ == "__main__":
    main()
