"""Run a command with N inotify instances: ``python -m ...scarce N COMMAND...``.

In a user namespace of its own, which has that limit. With 0, inotify_init answers as on a
node whose users have used up theirs (EMFILE), and nobody else is concerned.
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
    """Become the command. Exit 125 with one line if there can be no such namespace."""
    try:
        enter_user()
        _LIMIT.write_text(sys.argv[1])
    except NamespaceError as error:
        _end(str(error))
    except OSError as error:
        _end(f"{_LIMIT} cannot be written in a user namespace: {error.strerror}")
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        _end(f"cannot run {sys.argv[2]}: {error.strerror}")


def _end(text: str) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    sys.exit(_FAILED)


if __name__ == "__main__":
    main()
