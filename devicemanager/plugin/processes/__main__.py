"""The supervisor as a separate process, for programs that start plugins."""

from __future__ import annotations

import sys
from typing import NoReturn

from devicemanager.plugin.processes.supervisor import Supervision, end_as, supervise


def main() -> NoReturn:
    """Supervise as the only argument says, which ``Supervision.encode`` wrote."""
    end_as(supervise(Supervision.decode(sys.argv[1])))


if __name__ == "__main__":
    main()
