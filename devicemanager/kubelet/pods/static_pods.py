"""Static pods: a watched directory of manifests, as the kubelet's ``--pod-manifest-path``.

Theory of operation. The pod of a new file is admitted. If the file changes, the pod is terminated
and the new pod admitted. If the file vanishes, the pod is terminated. A ``PodOwner`` admits and
terminates the pods.

* ``StaticPods`` watches the directory. It converts file events into calls of ``ManifestFiles``,
  one at a time.
* ``ManifestFiles`` knows the pod of each file. It compares a changed file with this pod, and
  queues admissions and terminations.
* ``FileQueue`` executes the actions of one file in order, on a separate thread.

The kubelet admits static pods one after the other, so pods of files that appear together get the
same devices each time. But an admission can hang in a plugin, and must not block other files.
Therefore the caller waits for an action for half a second. A slower action continues in the
background, and only later actions of the same file wait for it.

Two files can have pods with the same UID. The first file keeps the UID. The second file waits
(``wanted_uid``) until the pod of the first file has been terminated. Then the thread that watches
the directory checks the second file again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import attrs

from devicemanager.core.errors import DeviceManagerError, RequestError
from devicemanager.core.pods import Pod
from devicemanager.io import directory_watch
from devicemanager.io.directory_watch import FollowedDirectory, is_complete_at_once, is_pivot
from devicemanager.io.watch import Change, ChangeKind
from devicemanager.objects.manifests import ManifestError, parse

SUFFIXES = (".yaml", ".yml", ".json")
"""Endings of manifest names. All other files, such as an editor's backups, are ignored."""

_PATIENCE = 0.5
"""Seconds to wait for the action of one file before the next file is processed."""
_PATIENCE_WHILE_LATE = 0.05
"""Seconds to wait while an action of another file hangs: this action will probably hang, too."""
_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED)
"""After these changes the contents of a file are complete."""

Report = Callable[[str], None]
"""Function that shows the user one line."""
Action = Callable[[], None]
"""Function that admits or terminates a pod. It must not raise an exception."""


class ManifestDirectoryError(RequestError):
    """Error for a manifest directory that cannot be watched."""


class PodOwner(Protocol):
    """The kubelet that admits and terminates static pods."""

    def admit(self, pod: Pod, path: Path) -> bool:
        """Admit the pod of a manifest. Return True if the pod runs, False if it was rejected.

        A rejected pod is retried when its file is written again. May raise DeviceManagerError if
        no pod was created.
        """

    def terminate(self, uid: str) -> None:
        """Terminate an admitted or rejected pod. May raise DeviceManagerError."""


class FileQueue:
    """Queue of admissions and terminations for one file. A separate thread executes them in order.

    The thread exits when the queue is empty. If no thread can be started, everything runs on the
    thread that calls ``add``.
    """

    def __init__(self) -> None:
        # Guards all fields below.
        self._changed = threading.Condition()
        self._waiting: deque[Action] = deque()
        self._working = False
        self._added = 0
        self._done = 0
        self._late = False

    @property
    def is_late(self) -> bool:
        """True if an action is still running after the caller of ``add`` has stopped waiting."""
        return self._late

    def add(self, action: Action, patience: float) -> None:
        """Queue an action and wait up to ``patience`` seconds until it is done.

        If an earlier action has already exceeded its time (``is_late``), return without waiting.
        """
        with self._changed:
            self._waiting.append(action)
            self._added += 1
            begins, self._working = not self._working, True
        if begins:
            try:
                threading.Thread(target=self._work, name="static pod", daemon=True).start()
            # Otherwise the queue would seem to have a thread, and no later action would run.
            except RuntimeError:
                self._work()
        self.wait(patience)

    def wait(self, patience: float) -> None:
        """Wait up to ``patience`` seconds until all queued actions are done.

        If an earlier action has already exceeded its time (``is_late``), return without waiting.
        """
        with self._changed:
            # Do not wait if an action is late: every later action would wait for the full time.
            if not self._late:
                # Counted at the beginning: actions that are queued later are not waited for.
                added = self._added
                self._late = not self._changed.wait_for(lambda: self._done >= added, patience)

    def _work(self) -> None:
        while (action := self._next()) is not None:
            action()
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _next(self) -> Action | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            # Still under the lock: ``add`` either finds this thread at work or starts another one.
            self._working = self._late = False
            return None


@attrs.define(eq=False)
class _File:
    """State of one manifest file and its pod."""

    pod: Pod | None = None
    known: bool = False
    """True if the pod was admitted or rejected. Such a pod must be terminated."""
    runs: bool = False
    pending: bool = False
    """True until the admission of the pod has returned."""
    complaint: str = ""
    """Readable error of the file's current contents; empty if the contents are valid."""
    unreadable: bool = False
    """True if the file cannot be read for lack of permissions."""
    wanted_uid: str | None = None
    """UID of the file's pod, if the pod of another file still has the same UID; otherwise None."""
    actions: FileQueue = attrs.field(factory=FileQueue)


class ManifestFiles:
    """The manifest files of a directory and their pods. Only one thread at a time may call methods.

    ``owner`` admits and terminates the pods. ``report`` and the methods of ``owner`` are called on
    several threads, but never on two threads at once for the same file.
    """

    def __init__(
        self,
        directory: Path,
        owner: PodOwner,
        report: Report,
        wake: Callable[[], None] = lambda: None,
        patience: float = _PATIENCE,
    ) -> None:
        """``wake`` is called, on any thread, when the UID of a terminated pod is free again.

        It must schedule a call of ``check_waiting`` on the thread that calls the other methods.
        """
        self._directory = directory
        self._owner = owner
        self._report = report
        self._wake = wake
        self._most_patience = patience
        self._files: dict[str, _File] = {}
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._leaving: dict[str, FileQueue] = {}
        """Pods that are being terminated: pod UID → the queue that terminates the pod."""
        self._freed: deque[str] = deque()
        """UIDs of pods that have been terminated, until ``check_waiting`` handles them."""
        self._closed = False

    def scan(self) -> None:
        """Check every file that is or was in the directory, in the order of their names."""
        present = {entry.name for entry in self._directory.iterdir() if is_manifest(entry.name)}
        # Sorted, so that the pods of new files get the same devices at each start.
        for name in sorted(present | self._files.keys()):
            self.check(name)

    def check(self, name: str) -> None:
        """Check a file that may have appeared, changed or vanished, and update its pod."""
        self._check(name)
        self.check_waiting()

    def moved(self, old: str, new: str) -> None:
        """Check a renamed file. Its pod keeps running if the contents have not changed."""
        # The state moves with the file. ``check`` then compares the contents as usual.
        if new != old and old in self._files and (self._directory / new).exists():
            # The renamed file may have replaced another manifest, whose pod then ends.
            self._vanished(new)
            self._files[new] = self._files.pop(old)
        self.check(new)
        self.check(old)

    def check_unreadable(self, name: str) -> None:
        """Check an unreadable file again, because its permissions have changed."""
        if name in self._files and self._files[name].unreadable:
            self.check(name)

    def check_waiting(self) -> None:
        """Check the files whose pods waited until a pod with the same UID was terminated."""
        while (uid := self._next_freed()) is not None:
            waiting = [name for name, file in self._files.items() if file.wanted_uid == uid]
            for name in sorted(waiting):
                self._check(name)

    def all_gone(self) -> None:
        """Terminate all pods. Called when the directory and its manifests were deleted."""
        for name in sorted(self._files):
            self._stop(name, self._files.pop(name))
        self.check_waiting()

    def close(self) -> None:
        """Start no more actions. Wait up to half a second for each file's actions in progress."""
        self._closed = True
        # Iterate over a copy, because another thread may still be checking files.
        for file in list(self._files.values()):
            file.actions.wait(self._patience())

    def _check(self, name: str) -> None:
        path = self._directory / name
        # A dangling link is handled like a removed file.
        if not path.exists():
            self._vanished(name)
            return
        if path.is_dir():
            # The kubelet logs this and continues, too (kubelet/config/file.go, extractFromDir).
            self._complain(name, f"{path}: is a directory: manifests in it are not read")
            return
        try:
            pod = parse(path)
        except ManifestError as error:
            self._complain(name, str(error))
            self._files[name].unreadable = not os.access(path, os.R_OK)
        else:
            self._found(name, path, pod)

    def _found(self, name: str, path: Path, pod: Pod) -> None:
        old = self._files.get(name, _File())
        first = self._holder(pod, name)
        if first is not None:
            who = f"pod {pod.namespace}/{pod.name} has the same UID as the pod in {first}"
            self._complain(
                name, f"{path}: {who} ({pod.uid}): not admitted: remove or rename one of them"
            )
            self._files[name].wanted_uid = pod.uid
        elif self._leaves_elsewhere(pod.uid, old.actions):
            self._files.setdefault(name, old).wanted_uid = pod.uid
        # An unchanged pod keeps running. A rejected pod is not left alone: users retry its
        # admission by writing its file again.
        elif old.pod == pod and (old.runs or old.pending):
            old.complaint, old.unreadable, old.wanted_uid = "", False, None
        else:
            # The new state keeps the queue, so that the old pod is terminated first.
            file = self._files[name] = _File(pod, pending=True, actions=old.actions)
            self._stop(name, old, successor=pod.uid)
            self._do(name, file, lambda: self._admit(name, file, pod, path))

    def _holder(self, pod: Pod, name: str) -> str | None:
        """Return the name of another file whose pod has the same UID; None without such a file."""
        for other, file in self._files.items():
            if other != name and file.pod is not None and file.pod.uid == pod.uid:
                return other
        return None

    def _leaves_elsewhere(self, uid: str, actions: FileQueue) -> bool:
        """True if the pod of another file has this UID and is being terminated."""
        with self._lock:
            # A pod in this file's own queue does not count, because the queue terminates it before
            # it admits the new pod.
            return self._leaving.get(uid, actions) is not actions

    def _vanished(self, name: str) -> None:
        if file := self._files.pop(name, None):
            self._stop(name, file)

    def _stop(self, name: str, file: _File, successor: str | None = None) -> None:
        """Terminate the pod of a file. ``successor`` is the UID of the file's new pod, if any.

        Files that wait for the old pod's UID are checked, unless the new pod has the same UID.
        """
        pod = file.pod
        if pod is None:
            return
        leaves = pod.uid != successor
        if leaves:
            with self._lock:
                self._leaving[pod.uid] = file.actions
        self._do(name, file, lambda: self._terminate(name, file, pod, leaves))

    def _complain(self, name: str, line: str) -> None:
        file = self._files.setdefault(name, _File())
        file.unreadable, file.wanted_uid = False, None
        # Report a problem only once, not for every event of the file.
        if file.complaint == line:
            return
        file.complaint = line
        addition = "; the pod admitted from it before keeps running" if file.runs else ""
        self._report(f"{line}{addition}")

    # -- actions, on the threads of the queues ---------------------------------------

    def _do(self, name: str, file: _File, action: Action) -> None:
        def unless_closed() -> None:
            # Checked when the action begins: an action that waited behind a hanging one must not
            # run after ``close``.
            if not self._closed:
                self._guarded(name, action)

        file.actions.add(unless_closed, self._patience())

    def _patience(self) -> float:
        late = any(file.actions.is_late for file in list(self._files.values()))
        return min(_PATIENCE_WHILE_LATE, self._most_patience) if late else self._most_patience

    def _admit(self, name: str, file: _File, pod: Pod, path: Path) -> None:
        try:
            file.runs = self._owner.admit(pod, path)
            file.known = True
        finally:
            file.pending = False

    def _terminate(self, name: str, file: _File, pod: Pod, leaves: bool) -> None:
        try:
            # The owner does not know a pod whose admission raised an error.
            if file.known:
                self._owner.terminate(pod.uid)
        finally:
            # Even if the termination failed: otherwise files would wait for this UID forever.
            if leaves:
                with self._lock:
                    self._leaving.pop(pod.uid, None)
                    self._freed.append(pod.uid)
                # This is the queue's thread, but only the directory's thread may check the files
                # that wait for this UID.
                self._wake()

    def _next_freed(self) -> str | None:
        with self._lock:
            return self._freed.popleft() if self._freed else None

    def _guarded(self, name: str, action: Callable[[], Any]) -> None:
        """Run an action, and report its errors instead of raising them."""
        try:
            action()
        except DeviceManagerError as error:
            self._report(f"{self._directory / name}: {error}")
        except Exception as error:
            self._report(f"{self._directory / name}: unexpected {type(error).__name__}: {error}")


class StaticPods(FollowedDirectory):
    """Watcher of a manifest directory from ``start`` to ``stop``; a context manager.

    ``owner`` admits and terminates the pods. ``report`` and the methods of ``owner`` are called on
    threads of this object, but never on two threads at once for the same file.

    A file is read when it is complete: when its writer closes it, or when it is moved or linked
    into the directory. An invalid file is reported in one line and read again when it changes. The
    pod of the earlier contents keeps running.

    ``start`` returns when the pods of the existing files have been admitted, except for
    admissions that hang in a plugin. ``stop`` does not terminate pods. It does not wait for
    admissions that hang; these end when the kubelet stops.
    """

    what = "manifest directory"
    error = ManifestDirectoryError

    def __init__(self, directory: str | os.PathLike[str], owner: PodOwner, report: Report) -> None:
        super().__init__(Path(directory), report)
        self._files = ManifestFiles(
            self.directory, owner, report, wake=lambda: self._todo.put(self._files.check_waiting)
        )

    def _scan(self) -> None:
        self._files.scan()

    def _close(self) -> None:
        self._files.close()

    def _react(self, change: Change) -> None:
        old, new = change.name, change.new_name
        if not old and not new:
            self._directory_deleted()
        # An update of a mounted ConfigMap replaces one link, so any of the files can have changed.
        elif is_pivot(change):
            self._files.scan()
        elif change.kind is ChangeKind.MOVED and is_manifest(old) and is_manifest(new):
            self._files.moved(old, new)
        elif change.kind in _COMPLETE:
            for name in filter(is_manifest, (new, old)):
                self._files.check(name)
        # A new file is empty until its writer closes it.
        elif change.kind is ChangeKind.CREATED:
            if is_manifest(old) and is_complete_at_once(self.directory / old):
                self._files.check(old)
        elif is_manifest(old):
            self._files.check_unreadable(old)

    def _directory_deleted(self) -> None:
        if not self.directory.exists():
            self._report(f"manifest directory {self.directory} deleted: its pods are terminated")
            self._files.all_gone()


def check_directory(directory: Path) -> None:
    """Raise ManifestDirectoryError if ``directory`` does not exist or is not a directory."""
    directory_watch.check_directory(directory, StaticPods.what, StaticPods.error)


def is_manifest(name: str) -> bool:
    """True if a file with this name is read: a YAML or JSON file, but not a hidden or temporary
    file."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))
