"""Checks of kubeconfigs, because the Kubernetes client raises obscure errors for invalid ones."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from devicemanager.io.safe_read import not_utf8

__all__ = ["check_kubeconfig", "client_errors"]


def check_kubeconfig(path: str | os.PathLike[str]) -> None:
    """Check that a kubeconfig file contains a mapping, in YAML or JSON.

    Raises ValueError if the file contains another value or is not UTF-8 text, and OSError if the
    file cannot be read. Accepts malformed YAML, for which the Kubernetes client raises a clear
    error.
    """
    # Imported here because yaml is slow to load. The Kubernetes client also loads it.
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(error)) from None
    except yaml.YAMLError:
        return  # the error of the Kubernetes client names line and column
    if not isinstance(content, dict):
        raise ValueError("not a kubeconfig file: expected the keys clusters, contexts and users")


@contextlib.contextmanager
def client_errors() -> Iterator[list[str]]:
    """Collect the Kubernetes client's error messages during a ``with`` block, in a list.

    The list has only errors that this thread logs to the root logger. A kubeconfig can name a
    credential program in an ``exec`` entry. If the program fails, the client only logs the failure
    and continues without credentials. The list is the only way to detect this.
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
        # Other threads can log at the same time.
        if record.name == "root" and record.thread == self._thread:
            self.lines.append(record.getMessage())
