"""Which manifest stands for which pod, and what became of it.

Files are looked at by one thread at a time, one after another. Their pods are admitted and
terminated in order, too, as the kubelet does it: but only as long as that is quick. An
admission that hangs in a plugin goes on beside the others, and only what happens to its own
file waits for it.
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
"""Names of manifests. Whatever else lies there, such as an editor's copies, is left alone."""

_PATIENCE = 0.5
"""As long as that, in seconds, pods that come together are admitted in the order of their
files' names, and so get the same devices each time."""
_PATIENCE_BESIDE = 0.05
"""The same while another pod hangs: what hung once hangs again."""

Report = Callable[[str], None]
"""Takes one line for the user."""

Act = Callable[[], None]
"""What is to be done. It must not raise."""

_COMPLETE = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.CLOSED)
"""After these a file is as it will stay."""


class ManifestDirectoryError(RequestError):
    """The manifest directory cannot be watched."""


class FileQueue:
    """Does what it is given, in order, on a thread that is there while something is to do; if
    none can be started, on that of the one who asks."""

    def __init__(self) -> None:
        # Guards all below.
        self._changed = threading.Condition()
        self._waiting: deque[Act] = deque()
        self._working = False
        self._added = 0
        self._done = 0
        self._late = False

    @property
    def is_late(self) -> bool:
        """Whether something takes longer than somebody wanted to wait for it."""
        return self._late

    def add(self, act: Act, patience: float) -> None:
        """Do ``act`` after all that was added before, and wait for its end, but no longer than
        ``patience`` seconds, and not at all behind something that is late already."""
        with self._changed:
            self._waiting.append(act)
            self._added += 1
            begins, self._working = not self._working, True
        if begins:
            try:
                threading.Thread(target=self._work, name="static pod", daemon=True).start()
            except RuntimeError:
                self._work()
        self.wait(patience)

    def wait(self, patience: float) -> None:
        """Wait for the end of all that was added, but no longer than ``patience`` seconds."""
        with self._changed:
            if not self._late:
                self._wait(patience)

    def _wait(self, patience: float) -> None:
        mine = self._added
        self._late = not self._changed.wait_for(lambda: self._done >= mine, patience)

    def _work(self) -> None:
        while (act := self._next()) is not None:
            act()
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _next(self) -> Act | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._working = self._late = False
            return None


class PodOwner(Protocol):
    """Who runs the pods."""

    def admit(self, pod: Pod, path: Path) -> bool:
        """A manifest appeared; whether its pod runs now. A pod that was rejected is tried
        again when its file is written again. May raise DeviceManagerError: no pod then."""

    def terminate(self, uid: str) -> None:
        """The manifest of an admitted or rejected pod is gone. May raise DeviceManagerError."""


@attrs.define(eq=False)
class _File:
    """What became of one manifest."""

    pod: Pod | None = None
    known: bool = False
    """Whether the owner has the pod, running or rejected."""
    runs: bool = False
    pending: bool = False
    """Whether the owner has not said yet."""
    complaint: str = ""
    """Why the file as it is now cannot be used; empty if it can."""
    unreadable: bool = False
    """Whether permissions are what is wrong."""
    wanted_uid: str | None = None
    """The UID that another file's pod has, if that is what is wrong."""
    acts: FileQueue = attrs.field(factory=FileQueue)
    """What happens to the file's pods, one after another."""


class ManifestFiles:
    """The manifests of a directory. Called by one thread at a time; calls the owner and
    ``report`` from several, for one file from one at a time."""

    def __init__(
        self,
        directory: Path,
        owner: PodOwner,
        report: Report,
        wake: Callable[[], None] = lambda: None,
        patience: float = _PATIENCE,
    ) -> None:
        """``wake`` is called, from any thread, when ``look_at_freed`` has something to do.
        ``patience``: how many seconds the next pod waits for the one before."""
        self._directory = directory
        self._owner = owner
        self._report = report
        self._wake = wake
        self._most_patience = patience
        self._files: dict[str, _File] = {}
        # Guards the two below.
        self._lock = threading.Lock()
        self._leaving: dict[str, FileQueue] = {}
        """UIDs of pods that are being terminated, and among which acts."""
        self._freed: deque[str] = deque()
        """UIDs that were taken, and are not any more."""
        self._closed = False

    def scan(self) -> None:
        """Look at every file there is, and at those that were there, in order of name."""
        present = {entry.name for entry in self._directory.iterdir() if is_manifest(entry.name)}
        for name in sorted(present | self._files.keys()):
            self.look_at(name)

    def look_at(self, name: str) -> None:
        """A file may have appeared, changed or vanished."""
        self._look_at(name)
        self.look_at_freed()

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

    def look_at_freed(self) -> None:
        """Look at the files that waited for a UID which is free now."""
        while (uid := self._next_freed()) is not None:
            waiting = [name for name, file in self._files.items() if file.wanted_uid == uid]
            for name in sorted(waiting):
                self._look_at(name)

    def all_gone(self) -> None:
        """The directory itself is gone, and with it every manifest."""
        for name in sorted(self._files):
            self._stop(name, self._files.pop(name))
        self.look_at_freed()

    def close(self) -> None:
        """Do nothing more. What is being done goes on, and is waited for if it is quick."""
        self._closed = True
        # A copy: files may still be looked at.
        for file in list(self._files.values()):
            file.acts.wait(self._patience())

    def _look_at(self, name: str) -> None:
        path = self._directory / name
        # A link to nothing counts as gone.
        if not path.exists():
            self._vanished(name)
            return
        if path.is_dir():
            # The kubelet says so and goes on, too (kubelet/config/file.go, extractFromDir).
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
            self._complain(name, f"{path}: {who}: the first keeps it; remove one or name it anew")
            self._files[name].wanted_uid = pod.uid
        elif self._leaves_elsewhere(pod.uid, old.acts):
            self._files.setdefault(name, old).wanted_uid = pod.uid
        elif old.pod == pod and (old.runs or old.pending):
            old.complaint, old.unreadable, old.wanted_uid = "", False, None
        else:
            file = self._files[name] = _File(pod, pending=True, acts=old.acts)
            self._stop(name, old, successor=pod.uid)
            self._do(name, file, lambda: self._admit(name, file, pod, path))

    def _holder(self, pod: Pod, name: str) -> str | None:
        """Another file whose pod has this UID."""
        for other, file in self._files.items():
            if other != name and file.pod is not None and file.pod.uid == pod.uid:
                return other
        return None

    def _leaves_elsewhere(self, uid: str, acts: FileQueue) -> bool:
        """Whether another file's pod has this UID, and is being terminated."""
        with self._lock:
            return self._leaving.get(uid, acts) is not acts

    def _vanished(self, name: str) -> None:
        if file := self._files.pop(name, None):
            self._stop(name, file)

    def _stop(self, name: str, file: _File, successor: str | None = None) -> None:
        """End a file's pod, and give its UID to a file that waited for it."""
        pod = file.pod
        if pod is None:
            return
        leaves = pod.uid != successor
        if leaves:
            with self._lock:
                self._leaving[pod.uid] = file.acts
        self._do(name, file, lambda: self._terminate(name, file, pod, leaves))

    def _complain(self, name: str, line: str) -> None:
        file = self._files.setdefault(name, _File())
        file.unreadable, file.wanted_uid = False, None
        if file.complaint == line:
            return
        file.complaint = line
        rest = "; the pod admitted from it before keeps running" if file.runs else ""
        self._report(f"{line}{rest}")

    # -- what is done to pods, on the acts' threads ------------------------------------

    def _do(self, name: str, file: _File, act: Callable[[], None]) -> None:
        def unless_closed() -> None:
            if not self._closed:
                self._guarded(name, act)

        file.acts.add(unless_closed, self._patience())

    def _patience(self) -> float:
        late = any(file.acts.is_late for file in list(self._files.values()))
        return min(_PATIENCE_BESIDE, self._most_patience) if late else self._most_patience

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
                self._wake()

    def _next_freed(self) -> str | None:
        with self._lock:
            return self._freed.popleft() if self._freed else None

    def _guarded(self, name: str, act: Callable[[], Any]) -> None:
        """The owner's trouble with one pod must not keep the others waiting."""
        try:
            act()
        except DeviceManagerError as error:
            self._report(f"{self._directory / name}: {error}")
        # An error that nobody foresaw would end the thread without a word.
        except Exception as error:
            self._report(f"{self._directory / name}: unexpected {type(error).__name__}: {error}")


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


def check_directory(directory: Path) -> None:
    """Raises ManifestDirectoryError for what is no directory."""
    directory_watch.check_directory(directory, StaticPods.what, StaticPods.error)


def is_manifest(name: str) -> bool:
    """Whether a file of this name is read: no dotfile, no temporary file of an editor."""
    return name.endswith(SUFFIXES) and not name.startswith((".", "#"))
