"""Static pods: a directory of manifests, watched, as the kubelet's ``--pod-manifest-path``.

A file that appears is admitted, one that changes is admitted anew, one that vanishes is
terminated. Nothing here knows a kubelet: the owner hands in what to do.
"""

from __future__ import annotations

import os
from pathlib import Path

from devicemanager.core.errors import RequestError
from devicemanager.io import directory_watch
from devicemanager.io.directory_watch import FollowedDirectory, is_complete_at_once, is_pivot
from devicemanager.io.watch import Change, ChangeKind
from devicemanager.kubelet.pods.manifestfiles import ManifestFiles, PodOwner, Report, is_manifest

__all__ = ["ManifestDirectoryError", "PodOwner", "StaticPods", "check_directory"]

_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED)
"""After these a file is as it will stay."""


class ManifestDirectoryError(RequestError):
    """The manifest directory cannot be watched."""


def check_directory(directory: Path) -> None:
    """Raises ManifestDirectoryError for what is no directory."""
    directory_watch.check_directory(directory, StaticPods.what, StaticPods.error)


class StaticPods(FollowedDirectory):
    """Watches a manifest directory from ``start`` to ``stop``; a context manager.

    ``owner`` and ``report`` are called by threads of ours, for one file by one at a time. The
    pods are admitted in the order in which their files come; one whose admission hangs in a
    plugin holds up the next for half a second and then only what happens to its own file. A
    file is read once it is complete: when its writer closes it, or when it is moved or
    linked here. A bad file is reported in one line and read again when it changes; its pod, if
    it had a good one before, keeps running.

    ``start`` returns when what is there has been admitted, but for admissions that hang.
    ``stop`` leaves the pods as they are, and does not wait for an admission that hangs in a
    plugin: that ends with its kubelet.
    """

    what = "manifest directory"
    error = ManifestDirectoryError

    def __init__(self, directory: str | os.PathLike[str], owner: PodOwner, report: Report) -> None:
        super().__init__(Path(directory), report)
        self._files = ManifestFiles(
            self.directory, owner, report, wake=lambda: self._todo.put(self._files.look_at_freed)
        )

    def _scan(self) -> None:
        self._files.scan()

    def _close(self) -> None:
        self._files.close()

    def _react(self, change: Change) -> None:
        old, new = change.name, change.new_name
        if not old and not new:
            self._directory_deleted()
        elif is_pivot(change):
            self._files.scan()
        elif change.kind is ChangeKind.MOVED and is_manifest(old) and is_manifest(new):
            self._files.moved(old, new)
        elif change.kind in _COMPLETE:
            for name in filter(is_manifest, (new, old)):
                self._files.look_at(name)
        elif change.kind is ChangeKind.CREATED:
            if is_manifest(old) and is_complete_at_once(self.directory / old):
                self._files.look_at(old)
        elif is_manifest(old):
            self._files.look_again_at_unreadable(old)

    def _directory_deleted(self) -> None:
        if not self.directory.exists():
            self._report(f"manifest directory {self.directory} is gone, and its pods with it")
            self._files.all_gone()
