"""Static pods: a watched directory of manifests, as the kubelet's ``--pod-manifest-path``.

Theory of operation. A file that appears is admitted, one that changes is terminated and admitted
again, one that vanishes is terminated. What to do with pods is up to a ``PodOwner``.

* ``StaticPods`` follows the directory. It turns file events into calls of ``ManifestFiles``, one
  at a time.
* ``ManifestFiles`` knows which file stands for which pod. It compares a file with what it was
  before, and queues admissions and terminations.
* ``FileQueue`` executes the actions of one file in order, on a separate thread.

The kubelet admits static pods one after the other, so pods that appear together get the same
devices each time. An admission can hang in a plugin, though, and must not block the other files.
Hence a compromise: the caller waits for each action, but only for half a second; then the action
continues alone, and only later actions of the same file wait for it.

Two files can claim one UID. The first file keeps it. The second one waits (``wanted_uid``) until
the pod of the first has been terminated, which another thread reports with ``wake``.
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
"""The same while an action of another file hangs: this one will probably hang, too."""
_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED)
"""After these changes the contents of a file are complete."""

Report = Callable[[str], None]
"""Takes one line for the user."""
Action = Callable[[], None]
"""An admission or a termination. Must not raise."""


class ManifestDirectoryError(RequestError):
    """The manifest directory cannot be watched."""


class PodOwner(Protocol):
    """The kubelet that runs the pods."""

    def admit(self, pod: Pod, path: Path) -> bool:
        """Admit the pod of a manifest. True if it runs.

        A rejected pod is retried when its file is written again. May raise DeviceManagerError;
        then there is no pod.
        """

    def terminate(self, uid: str) -> None:
        """Terminate an admitted or rejected pod. May raise DeviceManagerError."""


class FileQueue:
    """Queue of the actions of one file, on a thread that exits when there are none.

    If no thread can be started, the caller's thread executes them.
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
        """True if an action takes longer than its caller waited."""
        return self._late

    def add(self, action: Action, patience: float) -> None:
        """Queue an action and wait up to ``patience`` seconds for it.

        If an earlier action is late, do not wait at all.
        """
        with self._changed:
            self._waiting.append(action)
            self._added += 1
            begins, self._working = not self._working, True
        if begins:
            try:
                threading.Thread(target=self._work, name="static pod", daemon=True).start()
            except RuntimeError:
                self._work()
        self.wait(patience)

    def wait(self, patience: float) -> None:
        """Wait up to ``patience`` seconds for all queued actions."""
        with self._changed:
            # Behind a late action nothing is waited for, or each new file would cost the patience
            # again.
            if not self._late:
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
            self._working = self._late = False
            return None


@attrs.define(eq=False)
class _File:
    """State of one manifest."""

    pod: Pod | None = None
    known: bool = False
    """True if the owner knows the pod, running or rejected."""
    runs: bool = False
    pending: bool = False
    """True until the owner has answered."""
    complaint: str = ""
    """Why the current contents cannot be used; empty if they can."""
    unreadable: bool = False
    """True if the reason is a lack of permissions."""
    wanted_uid: str | None = None
    """The UID that another file's pod has, if that is the reason."""
    actions: FileQueue = attrs.field(factory=FileQueue)


class ManifestFiles:
    """The manifests of a directory. Only one thread at a time may call its methods.

    The owner and ``report`` are called on several threads, but for one file only on one.
    """

    def __init__(
        self,
        directory: Path,
        owner: PodOwner,
        report: Report,
        wake: Callable[[], None] = lambda: None,
        patience: float = _PATIENCE,
    ) -> None:
        """``wake`` is called, on any thread, when ``check_waiting`` has something to do."""
        self._directory = directory
        self._owner = owner
        self._report = report
        self._wake = wake
        self._most_patience = patience
        self._files: dict[str, _File] = {}
        # Guards the two fields below.
        self._lock = threading.Lock()
        self._leaving: dict[str, FileQueue] = {}
        """UIDs of pods that are being terminated, and the queues that do it."""
        self._freed: deque[str] = deque()
        """UIDs that have become free."""
        self._closed = False

    def scan(self) -> None:
        """Check every file in the directory, and those that were there, in order of name."""
        present = {entry.name for entry in self._directory.iterdir() if is_manifest(entry.name)}
        for name in sorted(present | self._files.keys()):
            self.check(name)

    def check(self, name: str) -> None:
        """Check a file that may have appeared, changed or vanished."""
        self._check(name)
        self.check_waiting()

    def moved(self, old: str, new: str) -> None:
        """Handle a renamed file: its pod keeps running, unless the contents changed, too."""
        # The state moves with the file. ``check`` then compares the contents as usual.
        if new != old and old in self._files and (self._directory / new).exists():
            self._vanished(new)
            self._files[new] = self._files.pop(old)
        self.check(new)
        self.check(old)

    def check_unreadable(self, name: str) -> None:
        """Check a file whose permissions changed, if they were the problem."""
        if name in self._files and self._files[name].unreadable:
            self.check(name)

    def check_waiting(self) -> None:
        """Check the files that waited for a UID that is free now."""
        while (uid := self._next_freed()) is not None:
            waiting = [name for name, file in self._files.items() if file.wanted_uid == uid]
            for name in sorted(waiting):
                self._check(name)

    def all_gone(self) -> None:
        """Handle the deletion of the directory with every manifest in it."""
        for name in sorted(self._files):
            self._stop(name, self._files.pop(name))
        self.check_waiting()

    def close(self) -> None:
        """Start no more actions, and wait a moment for those in progress."""
        self._closed = True
        # A copy: another thread may still be checking files.
        for file in list(self._files.values()):
            file.actions.wait(self._patience())

    def _check(self, name: str) -> None:
        path = self._directory / name
        # A dangling link counts as gone.
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
            who = f"pod {pod.namespace}/{pod.name} has the UID of the pod in {first} ({pod.uid})"
            self._complain(name, f"{path}: {who}: the first keeps it; remove or rename one")
            self._files[name].wanted_uid = pod.uid
        elif self._leaves_elsewhere(pod.uid, old.actions):
            self._files.setdefault(name, old).wanted_uid = pod.uid
        elif old.pod == pod and (old.runs or old.pending):
            old.complaint, old.unreadable, old.wanted_uid = "", False, None
        else:
            # The queue goes over to the new state: the old pod must be terminated first.
            file = self._files[name] = _File(pod, pending=True, actions=old.actions)
            self._stop(name, old, successor=pod.uid)
            self._do(name, file, lambda: self._admit(name, file, pod, path))

    def _holder(self, pod: Pod, name: str) -> str | None:
        """Return another file whose pod has this UID."""
        for other, file in self._files.items():
            if other != name and file.pod is not None and file.pod.uid == pod.uid:
                return other
        return None

    def _leaves_elsewhere(self, uid: str, actions: FileQueue) -> bool:
        """True if the pod of another file has this UID and is being terminated."""
        with self._lock:
            return self._leaving.get(uid, actions) is not actions

    def _vanished(self, name: str) -> None:
        if file := self._files.pop(name, None):
            self._stop(name, file)

    def _stop(self, name: str, file: _File, successor: str | None = None) -> None:
        """Terminate a file's pod; its UID becomes free unless the successor has the same."""
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
        # Report a problem once, not again for every event of the file.
        if file.complaint == line:
            return
        file.complaint = line
        rest = "; the pod admitted from it before keeps running" if file.runs else ""
        self._report(f"{line}{rest}")

    # -- actions, on the threads of the queues ---------------------------------------

    def _do(self, name: str, file: _File, action: Action) -> None:
        def unless_closed() -> None:
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
            if file.known:
                self._owner.terminate(pod.uid)
        finally:
            if leaves:
                with self._lock:
                    self._leaving.pop(pod.uid, None)
                    self._freed.append(pod.uid)
                # The UID is free, but this is the queue's thread: only the directory's thread may
                # check files.
                self._wake()

    def _next_freed(self) -> str | None:
        with self._lock:
            return self._freed.popleft() if self._freed else None

    def _guarded(self, name: str, action: Callable[[], Any]) -> None:
        """Run an action; report its errors, so that the queue continues."""
        try:
            action()
        except DeviceManagerError as error:
            self._report(f"{self._directory / name}: {error}")
        except Exception as error:
            self._report(f"{self._directory / name}: unexpected {type(error).__name__}: {error}")


class StaticPods(FollowedDirectory):
    """Watch on a manifest directory from ``start`` to ``stop``; a context manager.

    ``owner`` and ``report`` are called on threads of this object, for one file on one at a time.
    A file is read when it is complete: when its writer closes it, or when it is moved or linked
    into the directory. A bad file is reported in one line and read again when it changes; if it
    had a good pod before, that pod keeps running.

    ``start`` returns when the existing files have been admitted, except for admissions that
    hang. ``stop`` does not terminate pods and does not wait for admissions that hang in a plugin:
    these end with their kubelet.
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
            self._report(f"manifest directory {self.directory} is gone, and its pods with it")
            self._files.all_gone()


def check_directory(directory: Path) -> None:
    """Raise ManifestDirectoryError if the path is not a directory."""
    directory_watch.check_directory(directory, StaticPods.what, StaticPods.error)


def is_manifest(name: str) -> bool:
    """True if a file of this name is read: not a dotfile or an editor's temporary file."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))
