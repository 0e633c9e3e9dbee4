"""Checks around the Kubernetes client, which fails with obscure errors for invalid kubeconfigs."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["check_kubeconfig", "client_errors"]


def check_kubeconfig(path: str | os.PathLike[str]) -> None:
    """Check that the file is a mapping, in YAML or JSON.

    Raises ValueError if it is not, OSError if it cannot be read.
    """
    # Imported here: slow to load, as the client itself, which loads it, too.
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError:
        return  # the client's own error names the place
    if not isinstance(content, dict):
        raise ValueError("it is not a kubeconfig: expected clusters, contexts and users")


@contextlib.contextmanager
def client_errors() -> Iterator[list[str]]:
    """Collect what the client logs to the root logger, on this thread, during the block.

    This is the only way to see that the program of an ``exec`` entry failed: the client logs
    that and continues without credentials.
    """
    noted = _Noted(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(noted)
    try:
        yield noted.lines
    finally:
        root.removeHandler(noted)


class _Noted(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        # Other threads may log at the same time.
        if record.name == "root" and record.thread == self._thread:
            self.lines.append(record.getMessage())
