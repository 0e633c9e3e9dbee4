"""A directory of pools, classes, claims and configs that is followed as it changes.

An object that appears or changes is applied, one that vanishes from all files is withdrawn. A
file that cannot be used is reported in one line for each thing that is wrong, and what it
held before stays. Nothing here knows a kubelet: the owner hands in what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from devicemanager.claims.errors import ClaimsError, InvalidObject
from devicemanager.claims.files import (
    Identity,
    display_name,
    files_in,
    identity,
    in_order,
    is_object_file,
    read_file,
)
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.core.errors import DeviceManagerError
from devicemanager.io import directory_watch
from devicemanager.io.directory_watch import FollowedDirectory, is_complete_at_once, is_pivot
from devicemanager.io.watch import Change, ChangeKind

_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED, ChangeKind.ATTRIBUTES)
"""After these a file is as it will stay, or can be read by now."""

Report = Callable[[str], None]
"""Takes one line for the user."""


class ObjectOwner(Protocol):
    """Who keeps the objects."""

    def apply(self, objects: Iterable[api.Object]) -> None:
        """Create or replace objects. Raises ClaimsError for the first that is rejected."""

    def withdraw(self, found: api.Object) -> bool:
        """Delete an object, if it is there."""


class ObjectFiles:
    """Which objects the files of a directory have. Called by one thread at a time."""

    def __init__(self, directory: Path, owner: ObjectOwner, report: Report) -> None:
        self._directory = directory
        self._owner = owner
        self._report = report
        self._files: dict[Path, tuple[api.Object, ...]] = {}
        self._wanted: dict[Identity, api.Object] = {}
        """What the files asked for when they were last read."""
        self._applied: dict[Identity, api.Object] = {}
        """What the owner took of it, and therefore what is ours to withdraw."""
        self._complaints: dict[Path, tuple[str, ...]] = {}
        self._untold: list[str] = []

    def scan(self) -> None:
        """Read every file, and bring the owner's objects up to date. Raises ClaimsError."""
        present = files_in(self._directory)
        for path in self._complaints.keys() - set(present):
            del self._complaints[path]
        self._files = {path: self._read(path) for path in present}
        self._settle()
        self._tell()

    def all_gone(self) -> None:
        """The directory itself is gone, and with it every object."""
        self._files.clear()
        self._settle()
        self._tell()

    def _tell(self) -> None:
        """Report what is wrong with files. Last: who reads of one may count on the others."""
        lines, self._untold = self._untold, []
        for line in lines:
            self._report(line)

    def _read(self, path: Path) -> tuple[api.Object, ...]:
        try:
            objects = read_file(path).objects
        except InvalidObject as error:
            kept = self._files.get(path, ())
            self._complain(path, error.lines, bool(kept))
            return kept
        self._complaints.pop(path, None)
        return objects

    def _complain(self, path: Path, lines: tuple[str, ...], keeps: bool) -> None:
        if self._complaints.get(path) == lines:
            return
        self._complaints[path] = lines
        for line in lines:
            self._untold.append(f"{line}{'; what it held before stays' if keeps else ''}")

    def _settle(self) -> None:
        wanted: dict[Identity, api.Object] = {}
        for path, objects in self._files.items():
            for found in objects:
                if wanted.setdefault(identity(found), found) is not found:
                    line = (
                        f"{path}: {display_name(found)} is in another file, too: the first counts"
                    )
                    self._complain(path, (line,), False)
        # Claims go before what they ask for, and come after it.
        for found in reversed(in_order(self._applied.values())):
            if identity(found) not in wanted and self._does(partial(self._owner.withdraw, found)):
                del self._applied[identity(found)]
        for found in in_order(wanted.values()):
            # What was rejected is not offered again before it changes.
            if self._wanted.get(identity(found)) == found:
                continue
            if self._does(partial(self._owner.apply, [found])):
                self._applied[identity(found)] = found
        self._wanted = wanted

    def _does(self, act: Callable[[], object]) -> bool:
        """Trouble with one object must not keep the others waiting."""
        try:
            act()
        except InvalidObject as error:
            for line in error.lines:
                self._report(f"{self._directory}: {line}")
        except DeviceManagerError as error:
            self._report(f"{self._directory}: {error}")
        else:
            return True
        return False


def check_directory(directory: Path) -> None:
    """Raises ClaimsError for what is no directory."""
    directory_watch.check_directory(directory, ClaimsDirectory.what, ClaimsDirectory.error)


class ClaimsDirectory(FollowedDirectory):
    """Follows a directory from ``start`` to ``stop``; a context manager.

    ``owner`` and ``report`` are called by one thread at a time: the caller's for what is there
    at the start, a thread of the watch afterwards. Objects are left as they are at the end.
    """

    what = "claims directory"
    error = ClaimsError

    def __init__(self, directory: Path, owner: ObjectOwner, report: Report) -> None:
        super().__init__(directory, report)
        self._files = ObjectFiles(directory, owner, report)

    def _scan(self) -> None:
        self._files.scan()

    def _react(self, change: Change) -> None:
        if not change.name and not change.new_name and not self.directory.exists():
            self._report(f"claims directory {self.directory} is gone, and its objects with it")
            self._files.all_gone()
        elif not (change.kind in _COMPLETE or is_complete_at_once(self.directory / change.name)):
            return
        elif is_pivot(change) or any(map(is_object_file, (change.name, change.new_name))):
            self._files.scan()
