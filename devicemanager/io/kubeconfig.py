"""A kubeconfig, before the Kubernetes client reads it: what is none makes that fail somewhere
inside of itself."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["check_kubeconfig", "client_errors"]


def check_kubeconfig(path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless the file is a mapping, in YAML or JSON; OSError if it cannot be
    read."""
    # As heavy as the client, which loads it, too.
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError:
        return  # the client tells where
    if not isinstance(content, dict):
        raise ValueError("it has no clusters, contexts and users, so it is no kubeconfig")


@contextlib.contextmanager
def client_errors() -> Iterator[list[str]]:
    """What the client, called on this thread meanwhile, says to the root logger alone: that is
    how it tells that the program of an ``exec`` entry failed, and it goes on as nobody."""
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
        if record.name == "root" and record.thread == self._thread:
            self.lines.append(record.getMessage())
