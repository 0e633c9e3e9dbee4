"""The control file: one line a device, its id and Healthy, Unhealthy or gone."""

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
    """Return the words by device id. Skip empty lines and those that start with #; log a
    warning for a wrong line and go on."""
    words: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) == 2 and (parts[1] in HEALTH or parts[1] == GONE):
            words[parts[0]] = parts[1]
        else:
            _log.warning("%s:%d: not an id and Healthy, Unhealthy or gone: %r", where, number, line)
    return words


class ControlFile:
    """Watches the file's directory, so that it may appear, vanish or be replaced.

    ``take`` gets the contents after every change, on the thread that noticed it; without the
    file they are empty.
    """

    def __init__(self, path: Path, take: Callable[[dict[str, str]], None]) -> None:
        self._path = path.absolute()
        self._take = take
        self._watch = DirectoryWatch(self._path.parent, lambda _change: self._read())
        # Guards _text, and keeps an older reading from being taken after a newer one.
        self._lock = threading.Lock()
        self._text = ""
        self._rejected = False

    def look(self) -> None:
        """Make sure that the directory is watched, then read the file."""
        self._watch.ensure()
        self._read()

    def close(self) -> None:
        self._watch.stop()

    def _contents(self) -> str:
        try:
            return read_regular(self._path, _MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""
        except FileRejected as error:
            if not self._rejected:
                self._rejected = True
                _log.warning("control file %s is not read: %s", self._path, error)
            return ""

    def _read(self) -> None:
        with self._lock:
            text = self._contents()
            if text != self._text:
                self._text = text
                self._take(parse_control(text, str(self._path)))
