"""Run a command that can create only N inotify instances: ``python -m ...scarce N COMMAND...``.

The limit applies to a new user namespace, so other processes are not affected. With N = 0,
inotify_init fails with EMFILE, as on a node where all instances are in use.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from devicemanager.plugin.processes.namespace import NamespaceError, enter_user

__all__ = ["main"]

_LIMIT = Path("/proc/sys/user/max_inotify_instances")
_FAILED = 125


def main() -> NoReturn:
    """Limit the number of inotify instances, then replace this process by the command.

    If one of the two steps fails, exit with status 125 and a one-line error.
    """
    try:
        enter_user()
        _LIMIT.write_text(sys.argv[1])
    except NamespaceError as error:
        _end(str(error))
    except OSError as error:
        _end(f"cannot write {_LIMIT} in a user namespace: {error.strerror}")
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        _end(f"cannot run {sys.argv[2]}: {error.strerror}")


def _end(text: str) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    sys.exit(_FAILED)


if __name__ == "__main__":
    main()
