"""Directories for kubelets that were given none."""

from __future__ import annotations

import os
import shutil
import weakref
from pathlib import Path

from devicemanager.core.errors import StartError
from devicemanager.io.temporary import ADVICE, NoDirectory, short_directory

__all__ = ["TemporaryRoot"]


class TemporaryRoot:
    """A directory of its own with a short path, from construction on.

    It goes with ``remove``, with its owner, or with the program, whichever comes first. A
    forked child removes nothing.
    """

    def __init__(self, owner: object) -> None:
        """Raises StartError if no directory can be made."""
        self.path = _make()
        self._remove = weakref.finalize(owner, _remove, self.path, os.getpid())
        self._owner = weakref.ref(owner)

    def ensure(self) -> None:
        """Make the directory again, under the same path, if it was removed. Raises
        StartError; something else of that name is not used."""
        owner = self._owner()
        if self._remove.alive or owner is None:
            return
        try:
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise StartError(f"cannot make directory {self.path}: {error.strerror}") from error
        self._remove = weakref.finalize(owner, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Remove the directory and everything in it. Removing twice does nothing."""
        self._remove()


def _make() -> Path:
    try:
        return short_directory()
    except NoDirectory as error:
        raise StartError(f"{error}: give the kubelet a root, or {ADVICE}") from error


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
