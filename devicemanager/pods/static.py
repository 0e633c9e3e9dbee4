"""Static pods: a directory of manifests, watched, as the kubelet's ``--pod-manifest-path``.

A file that appears is admitted, one that changes is admitted anew, one that vanishes is
terminated. Nothing here knows a kubelet: the owner hands in what to do.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from devicemanager.core.errors import RequestError
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch
from devicemanager.pods.manifestfiles import ManifestFiles, PodOwner, Report, is_manifest

__all__ = ["ManifestDirectoryError", "PodOwner", "StaticPods", "check_directory"]

_PATIENCE = 0.5

_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED)
"""After these a file is as it will stay."""


class ManifestDirectoryError(RequestError):
    """The manifest directory cannot be watched."""


def check_directory(directory: Path) -> None:
    """Raises ManifestDirectoryError for what is no directory."""
    if not directory.is_dir():
        fault = "is not a directory" if directory.exists() else "does not exist"
        raise ManifestDirectoryError(f"manifest directory {directory} {fault}")


class StaticPods:
    """Watches a manifest directory from ``start`` to ``stop``; a context manager.

    ``owner`` and ``report`` are called by threads of ours, for one file by one at a time. The
    pods are admitted in the order in which their files come; one whose admission hangs in a
    plugin holds up the next for half a second and then only what happens to its own file. A
    file is read once it is complete: when its writer closes it, or when it is moved or
    linked here. A bad file is reported in one line and read again when it changes; its pod, if
    it had a good one before, keeps running.
    """

    def __init__(self, directory: str | os.PathLike[str], owner: PodOwner, report: Report) -> None:
        self.directory = Path(directory)
        self._files = ManifestFiles(
            self.directory, owner, report, wake=lambda: self._todo.put(self._files.look_at_freed)
        )
        self._report = report
        # What the watch told. Its own thread must not wait for an admission: stopping the
        # watch would wait for it, too.
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._watch = DirectoryWatch(
            self.directory, lambda change: self._todo.put(partial(self._react, change))
        )
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name="static pods", daemon=True)

    def start(self) -> None:
        """Admit what is there and watch from now on. Raises ManifestDirectoryError.

        Returns when what is there has been admitted, but for admissions that hang.
        """
        check_directory(self.directory)
        # Watched before the scan, so that nothing is missed in between.
        try:
            self._watch.start()
            self._files.scan()
        except OSError as error:
            self._watch.stop()
            reason = error.strerror or error
            raise ManifestDirectoryError(
                f"manifest directory {self.directory} cannot be watched: {reason}"
            ) from error
        self._worker.start()

    def stop(self) -> None:
        """Stop watching. Pods are left as they are. Stopping twice does nothing.

        An admission that hangs in a plugin is not waited for: it ends with its kubelet.
        """
        self._stopping.set()
        self._watch.stop()
        self._files.close()
        self._todo.put(None)
        if self._worker.is_alive():
            self._worker.join(_PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _work(self) -> None:
        while (do := self._todo.get()) is not None and not self._stopping.is_set():
            try:
                do()
            # An error here would end the watch without a word.
            except Exception as error:
                self._report(f"manifest directory {self.directory}: {error}")

    def _react(self, change: Change) -> None:
        old, new = change.name, change.new_name
        if not old and not new:
            self._directory_deleted()
        elif _is_pivot(old, new):
            self._files.scan()
        elif change.kind is ChangeKind.MOVED and is_manifest(old) and is_manifest(new):
            self._files.moved(old, new)
        elif change.kind in _COMPLETE:
            for name in filter(is_manifest, (new, old)):
                self._files.look_at(name)
        elif change.kind is ChangeKind.CREATED:
            if is_manifest(old) and _is_linked(self.directory / old):
                self._files.look_at(old)
        elif is_manifest(old):
            self._files.look_again_at_unreadable(old)

    def _directory_deleted(self) -> None:
        if not self.directory.exists():
            self._report(f"manifest directory {self.directory} is gone, and its pods with it")
            self._files.all_gone()


def _is_pivot(old: str, new: str) -> bool:
    """The name through which a mounted ConfigMap turns all its files over at once."""
    return "..data" in (old, new)


def _is_linked(path: Path) -> bool:
    """A link comes complete; of any other new file the writer's close will be told."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
