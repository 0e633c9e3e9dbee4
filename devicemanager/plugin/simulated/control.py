"""Control file of a simulated plugin, which sets the states of devices.

Each line has the ID and the state of a device. The state is Healthy, Unhealthy or gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.io.watch import DirectoryWatch
from devicemanager.plugin.simulated.table import GONE, HEALTH

__all__ = ["ControlFile", "parse_control"]

_log = logging.getLogger(__name__)

_MOST_BYTES = 16 << 20


def parse_control(text: str, where: str) -> dict[str, str]:
    """Parse a control file, and return the states by device ID.

    Skip empty lines and comments (#). Skip invalid lines with a warning; ``where`` names the file
    in the warning.
    """
    states: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) == 2 and (parts[1] in HEALTH or parts[1] == GONE):
            states[parts[0]] = parts[1]
        else:
            _log.warning(
                "%s:%d: invalid line %r: expected ID and Healthy, Unhealthy or gone",
                where,
                number,
                line,
            )
    return states


class ControlFile:
    """Control file that is read again after every change.

    Its directory is watched, so the file can be created, removed or replaced. After a change of
    the content, ``apply`` is called with the states by device ID, on the thread that read the
    file. A missing file counts as empty.
    """

    def __init__(self, path: Path, apply: Callable[[dict[str, str]], None]) -> None:
        self._path = path.absolute()
        self._apply = apply
        self._watch = DirectoryWatch(self._path.parent, lambda _change: self._read())
        # Guards _text, and prevents older content from being applied after newer content.
        self._lock = threading.Lock()
        self._text = ""
        self._rejected = False

    def refresh(self) -> None:
        """Watch the directory of the control file, if it is not watched yet. Then read the file."""
        self._watch.ensure()
        self._read()

    def close(self) -> None:
        self._watch.stop()

    def _contents(self) -> str:
        try:
            # Undecodable bytes must not end the plugin; their line is reported as invalid.
            return read_regular(self._path, _MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""
        except FileRejected as error:
            if not self._rejected:
                self._rejected = True
                _log.warning("cannot read control file %s: %s", self._path, error)
            return ""

    def _read(self) -> None:
        with self._lock:
            text = self._contents()
            # Many file events do not change the content.
            if text != self._text:
                self._text = text
                self._apply(parse_control(text, str(self._path)))
