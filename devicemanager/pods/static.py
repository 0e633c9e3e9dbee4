"""Static pods: a directory of manifests, watched, as the kubelet's ``--pod-manifest-path``.

A file that appears is admitted, one that changes is admitted anew, one that vanishes is
terminated. Nothing here knows a kubelet: the owner hands in what to do.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import attrs

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.pods import Pod
from devicemanager.io.watch import Change, ChangeKind, DirectoryWatch
from devicemanager.manifests import ManifestError, parse

__all__ = ["ManifestDirectoryError", "PodOwner", "StaticPods", "check_directory"]

SUFFIXES = (".yaml", ".yml", ".json")
"""Names of manifests. Whatever else lies there, such as an editor's copies, is left alone."""

_PATIENCE = 0.5

_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED)
"""After these a file is as it will stay."""

Report = Callable[[str], None]
"""Takes one line for the user."""


class ManifestDirectoryError(RequestError):
    """The manifest directory cannot be watched."""


class PodOwner(Protocol):
    """Who runs the pods."""

    def admit(self, pod: Pod, path: Path) -> bool:
        """A manifest appeared; whether its pod runs now. A pod that was refused is tried
        again when its file is written again. May raise DeviceManagerError: no pod then."""

    def terminate(self, uid: str) -> None:
        """The manifest of an admitted or refused pod is gone. May raise DeviceManagerError."""


@attrs.define
class _File:
    """What became of one manifest."""

    pod: Pod | None = None
    known: bool = False
    """Whether the owner has the pod, running or refused."""
    runs: bool = False
    complaint: str = ""
    """Why the file as it is now cannot be used; empty if it can."""
    unreadable: bool = False
    """Whether permissions are what is wrong."""
    wanted_uid: str | None = None
    """The UID that another file's pod has, if that is what is wrong."""


class ManifestFiles:
    """Which file stands for which pod. Called by one thread at a time."""

    def __init__(self, directory: Path, owner: PodOwner, report: Report) -> None:
        self._directory = directory
        self._owner = owner
        self._report = report
        self._files: dict[str, _File] = {}

    def scan(self) -> None:
        """Look at every file there is, and at those that were there, in order of name."""
        present = {entry.name for entry in self._directory.iterdir() if is_manifest(entry.name)}
        for name in sorted(present | self._files.keys()):
            self.look_at(name)

    def look_at(self, name: str) -> None:
        """A file may have appeared, changed or vanished."""
        path = self._directory / name
        # A link to nothing counts as gone.
        if not path.exists():
            self._vanished(name)
            return
        if path.is_dir():
            return
        try:
            pod = parse(path)
        except ManifestError as error:
            self._complain(name, str(error))
            self._files[name].unreadable = not os.access(path, os.R_OK)
        else:
            self._found(name, path, pod)

    def moved(self, old: str, new: str) -> None:
        """A file got another name: its pod runs on, unless the contents changed, too."""
        if new != old and old in self._files and (self._directory / new).exists():
            self._vanished(new)
            self._files[new] = self._files.pop(old)
        self.look_at(new)
        self.look_at(old)

    def look_again_at_unreadable(self, name: str) -> None:
        """Permissions may have changed: of interest only where they were the trouble."""
        if name in self._files and self._files[name].unreadable:
            self.look_at(name)

    def all_gone(self) -> None:
        """The directory itself is gone, and with it every manifest."""
        for name in sorted(self._files):
            self._stop(name, self._files.pop(name))

    def _found(self, name: str, path: Path, pod: Pod) -> None:
        old = self._files.get(name, _File())
        first = self._holder(pod, name)
        if first is not None:
            who = f"pod {pod.namespace}/{pod.name} has the UID of the pod in {first} ({pod.uid})"
            self._complain(name, f"{path}: {who}: the first keeps it; remove one or name it anew")
            self._files[name].wanted_uid = pod.uid
            return
        runs_on = old.runs and old.pod == pod
        file = self._files[name] = _File(pod, runs_on, runs_on)
        if not runs_on:
            self._stop(name, old, successor=pod.uid)
            answer = self._guarded(name, lambda: self._owner.admit(pod, path))
            file.known, file.runs = answer is not None, bool(answer)

    def _holder(self, pod: Pod, name: str) -> str | None:
        """Another file whose pod has this UID."""
        for other, file in self._files.items():
            if other != name and file.pod is not None and file.pod.uid == pod.uid:
                return other
        return None

    def _vanished(self, name: str) -> None:
        if file := self._files.pop(name, None):
            self._stop(name, file)

    def _stop(self, name: str, file: _File, successor: str | None = None) -> None:
        """End a file's pod, and give its UID to a file that waited for it."""
        pod = file.pod
        if pod is None:
            return
        if file.known:
            self._guarded(name, lambda: self._owner.terminate(pod.uid))
        if pod.uid != successor:
            waiting = [each for each, f in self._files.items() if f.wanted_uid == pod.uid]
            for other in sorted(waiting):
                self.look_at(other)

    def _complain(self, name: str, line: str) -> None:
        file = self._files.setdefault(name, _File())
        file.unreadable, file.wanted_uid = False, None
        if file.complaint == line:
            return
        file.complaint = line
        rest = "; the pod admitted from it before keeps running" if file.runs else ""
        self._report(f"{line}{rest}")

    def _guarded(self, name: str, act: Callable[[], Any]) -> Any:
        """The owner's trouble with one pod must not keep the others waiting."""
        try:
            return act()
        except DeviceManagerError as error:
            self._report(f"{self._directory / name}: {error}")
            return None


def check_directory(directory: Path) -> None:
    """Raises ManifestDirectoryError for what is no directory."""
    if not directory.is_dir():
        fault = "is not a directory" if directory.exists() else "does not exist"
        raise ManifestDirectoryError(f"manifest directory {directory} {fault}")


class StaticPods:
    """Watches a manifest directory from ``start`` to ``stop``; a context manager.

    ``owner`` and ``report`` are called by one thread at a time: by the caller's for the
    manifests that are there at the start, by a thread of the watch afterwards. A file is
    read once it is complete: when its writer closes it, or when it is moved or linked
    here. A bad file is reported in one line and read again when it changes; its pod, if
    it had a good one before, keeps running.
    """

    def __init__(self, directory: str | os.PathLike[str], owner: PodOwner, report: Report) -> None:
        self.directory = Path(directory)
        self._files = ManifestFiles(self.directory, owner, report)
        self._report = report
        # What the watch told. Its own thread must not wait for an admission: stopping the
        # watch would wait for it, too.
        self._told: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._watch = DirectoryWatch(self.directory, self._told.put)
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name="static pods", daemon=True)

    def start(self) -> None:
        """Admit what is there and watch from now on. Raises ManifestDirectoryError."""
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
        self._told.put(None)
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
        while (event := self._told.get()) is not None and not self._stopping.is_set():
            try:
                self._react(event)
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


def is_manifest(name: str) -> bool:
    """Whether a file of this name is read: no dotfile, no temporary file of an editor."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))


def _is_pivot(old: str, new: str) -> bool:
    """The name through which a mounted ConfigMap turns all its files over at once."""
    return "..data" in (old, new)


def _is_linked(path: Path) -> bool:
    """A link comes complete; of any other new file the writer's close will be told."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
