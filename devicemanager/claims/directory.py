"""Watch a directory, and apply the objects in its files: pools, classes, claims and configs.

In:  the files of a directory, each time one changes.
Out: calls to an ``ObjectOwner``: apply new and changed objects, withdraw objects that are no
     longer in any file; and one line for each error in a file.
"""

# A file with errors keeps its last valid objects: an editor that saves half a file must not
# delete the claims of running pods. Only objects that this module applied are withdrawn.

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
"""Changes after which a file is complete, or has become readable."""

Report = Callable[[str], None]
"""Callback that shows one line to the user."""


class ObjectOwner(Protocol):
    """Owner of pools, classes, claims and configs, such as a ``ClaimManager``."""

    def apply(self, objects: Iterable[api.Object]) -> None:
        """Create or replace objects one after another.

        Raises ClaimsError for the first rejected object. Objects before this one stay created.
        """

    def withdraw(self, found: api.Object) -> bool:
        """Delete an object. Return False if it does not exist."""


class ObjectFiles:
    """Reader of a directory's files, which passes their objects to an ``ObjectOwner``.

    Not thread-safe.
    """

    def __init__(self, directory: Path, owner: ObjectOwner, report: Report) -> None:
        self._directory = directory
        self._owner = owner
        self._report = report
        self._files: dict[Path, tuple[api.Object, ...]] = {}
        # The objects of the files when they were last read.
        self._wanted: dict[Identity, api.Object] = {}
        # The objects that the owner accepted. Only these are withdrawn.
        self._applied: dict[Identity, api.Object] = {}
        # By file: the lines that describe its errors, so that each line is reported once.
        self._faults: dict[Path, tuple[str, ...]] = {}
        self._unreported: list[str] = []

    def scan(self) -> None:
        """Read all files of the directory, and pass their changes to the ``ObjectOwner``.

        Apply new and changed objects. Withdraw objects that no file has any more. Raises
        ClaimsError if the directory cannot be read.
        """
        present = files_in(self._directory)
        for path in self._faults.keys() - set(present):
            del self._faults[path]
        self._files = {path: self._read(path) for path in present}
        self._update_owner()
        self._report_faults()

    def withdraw_all(self) -> None:
        """Withdraw every object that came from the directory, because the directory was removed."""
        self._files.clear()
        self._update_owner()
        self._report_faults()

    def _report_faults(self) -> None:
        # Called after the update of the owner, so a reader of a report can rely on the objects of
        # the other files.
        lines, self._unreported = self._unreported, []
        for line in lines:
            self._report(line)

    def _read(self, path: Path) -> tuple[api.Object, ...]:
        try:
            objects = read_file(path).objects
        except InvalidObject as error:
            last = self._files.get(path, ())
            self._add_fault(path, error.lines, bool(last))
            return last
        self._faults.pop(path, None)
        return objects

    def _add_fault(self, path: Path, lines: tuple[str, ...], keeps_last: bool) -> None:
        if self._faults.get(path) == lines:
            return
        self._faults[path] = lines
        for line in lines:
            suffix = "; its last valid objects stay" if keeps_last else ""
            self._unreported.append(line + suffix)

    def _update_owner(self) -> None:
        wanted: dict[Identity, api.Object] = {}
        for path, objects in self._files.items():
            for found in objects:
                if wanted.setdefault(identity(found), found) is not found:
                    line = (
                        f"{path}: {display_name(found)} is also in another file: the other file"
                        " is used"
                    )
                    self._add_fault(path, (line,), False)
        # Claims are withdrawn before the classes and pools that they refer to, and applied after
        # them.
        for found in reversed(in_order(self._applied.values())):
            if identity(found) not in wanted and self._try(partial(self._owner.withdraw, found)):
                del self._applied[identity(found)]
        for found in in_order(wanted.values()):
            # A rejected object is applied again only after it changes, so it is reported once.
            if self._wanted.get(identity(found)) == found:
                continue
            if self._try(partial(self._owner.apply, [found])):
                self._applied[identity(found)] = found
        self._wanted = wanted

    def _try(self, act: Callable[[], object]) -> bool:
        """Call the owner. If it rejects an object, report this and return False."""
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
    """Raise ClaimsError if the path is not a directory."""
    directory_watch.check_directory(directory, ClaimsDirectory.what, ClaimsDirectory.error)


class ClaimsDirectory(FollowedDirectory):
    """Watcher of a directory, which passes the objects in its files to an ``ObjectOwner``.

    Use it as a context manager. ``start`` applies the existing files in the caller's thread. A
    separate thread then applies later changes, until ``stop`` is called. ``stop`` withdraws no
    objects. Errors are passed to ``report``. ``owner`` and ``report`` are never called
    concurrently.
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
            self._report(f"claims directory {self.directory} was removed: objects withdrawn")
            self._files.withdraw_all()
        elif not (change.kind in _COMPLETE or is_complete_at_once(self.directory / change.name)):
            return
        elif is_pivot(change) or any(map(is_object_file, (change.name, change.new_name))):
            self._files.scan()
