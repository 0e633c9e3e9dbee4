"""The process that enters namespaces and becomes a container.

It forks once: the child is process 1 of a new PID namespace. If one of the two is killed, the
kernel kills the other. If process 1 ends, the kernel kills all processes in the namespace. All
mounts are in a private mount namespace. ``/tmp`` in this namespace is in memory and contains the
bundle:

    /tmp/root         the root file system
    /tmp/config.json  the configuration, for a runtime and for hooks
    /tmp/sources      the sources of mounts
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from devicemanager.io.parent import end_with_parent
from devicemanager.plugin.processes.interpreter import why_not_started
from devicemanager.plugin.processes.namespace import (
    NamespaceError,
    enter_container,
    mount,
    replace_directory,
    resolved,
    set_read_only,
)
from devicemanager.sandbox import terminal

_CANNOT_START = 127
_STAGE = Path("/tmp")
_ROOT = _STAGE / "root"
_CGROUPS = Path("/sys/fs/cgroup")
_BASIC_NODES = ("full", "null", "random", "tty", "urandom", "zero")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_BEFORE = ("prestart", "createRuntime", "createContainer")
_HOOK_SECONDS = 60.0
_PR_CAPBSET_DROP = 24
_CAPABILITIES = 64
_BIND = 0x1000 | 0x4000


class _Failed(Exception):
    """Error for a container that cannot be created. The text is one line."""


def main(plan: str) -> NoReturn:
    """Run a command in a container, and exit with the exit status of the command.

    The exit status is 128 + N if signal N killed the command, and 127 if the command cannot be
    started. ``plan`` is the JSON that ``running.run`` creates: the backend and the OCI
    configuration.
    """
    values = json.loads(plan)
    has_terminal = terminal.has_terminal()
    end_with_parent(os.getppid(), _CANNOT_START)
    try:
        enter_container()
    except (NamespaceError, OSError) as error:
        _fail(str(error))
    child = os.fork()
    if child == 0:
        end_with_parent(os.getppid(), _CANNOT_START)
        _contain(values["config"], values["backend"], has_terminal)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the terminal sends them to the command, too
    _exit_as(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _contain(config: dict[str, Any], backend: str, has_terminal: bool) -> NoReturn:
    try:
        # Outside new namespaces, the mounts below would hide the machine's /tmp.
        if os.getpid() != 1:
            raise _Failed("the process is not in a new PID namespace")
        program = -1
        if backend != "namespaces":
            # Opened first, because the in-memory /tmp hides programs in the host's /tmp.
            program = os.open(shutil.which(backend) or backend, os.O_PATH)
            _add_processes(config)
            if has_terminal:
                terminal.add_to(config)
        # runc creates the basic device nodes itself, and fails if they exist.
        _stage(config, () if backend == "runc" else _BASIC_NODES)
        if backend == "namespaces":
            _exit_as(_run(config, has_terminal))
        _hide_cgroups(backend)
        if backend == "runc":
            # It reads the processes of this PID namespace.
            mount("proc", "/proc", "proc", 0)
            # runc prints errors on standard error in any case, and its warnings only in the log.
            options = ["--rootless", "true", "--log", str(_STAGE / "runc.log")]
        else:
            options = ["--cgroup-manager", "disabled"]
        words = [backend, "--root", str(_STAGE / "state"), *options]
        os.execve(program, [*words, "run", "--bundle", str(_STAGE), "container"], os.environ)
    except (OSError, NamespaceError, _Failed) as error:
        _fail(f"cannot create the container: {error}")


def _add_processes(config: dict[str, Any]) -> None:
    """Let the runtime create another PID namespace.

    A runtime ends only when all processes below it have ended. In a PID namespace, they end with
    the command.
    """
    config["linux"]["namespaces"].append({"type": "pid"})
    options = ["nosuid", "noexec", "nodev", "ro"]
    proc = {"destination": "/proc", "type": "proc", "source": "proc", "options": options}
    config["mounts"].insert(0, proc)


def _hide_cgroups(backend: str) -> None:
    """Keep the runtime from creating cgroups: without root, it cannot use them."""
    if backend == "runc" and _CGROUPS.is_mount():
        # runc ignores the error of a read-only file system, and fails if the directory is empty.
        set_read_only(str(_CGROUPS), True, recursive=True)
    elif _CGROUPS.is_dir():
        # crun reads the directory even with ``--cgroup-manager disabled``.
        mount("tmpfs", str(_CGROUPS), "tmpfs", 0)


# -- the bundle --------------------------------------------------------------------------


def _stage(config: dict[str, Any], nodes: Iterable[str]) -> None:
    """Create the bundle in memory: sources, root, and a mount point for each mount."""
    root = os.open(config["root"]["path"], os.O_PATH)
    # Opened first, because the in-memory /tmp hides sources in the host's /tmp.
    opened = {
        number: os.open(each["source"], os.O_PATH)
        for number, each in enumerate(config["mounts"])
        if each["type"] == "bind"
    }
    mount("tmpfs", str(_STAGE), "tmpfs", 0, b"mode=0755")
    tempfile.tempdir = str(_STAGE)
    for directory in (_ROOT, _STAGE / "sources"):
        directory.mkdir()
    mount("tmpfs", str(_ROOT), "tmpfs", 0, b"mode=0755")
    _show_root(Path(f"/proc/self/fd/{root}"), nodes)
    for number, descriptor in opened.items():
        source = _STAGE / "sources" / str(number)
        _bind(Path(f"/proc/self/fd/{descriptor}"), source)
        config["mounts"][number]["source"] = str(source)
    for each in config["mounts"]:
        is_file = each["type"] == "bind" and not Path(each["source"]).is_dir()
        _make(each["destination"], is_file=is_file)
    set_read_only(str(_ROOT), True, recursive=True)
    for name in ("dev", "tmp"):
        set_read_only(str(_ROOT / name), False)
    config["root"] = {"path": str(_ROOT), "readonly": True}
    (_STAGE / "config.json").write_text(json.dumps(config))


def _show_root(source: Path, nodes: Iterable[str]) -> None:
    """Build the root directory from bind mounts of the entries of ``source``, and of ``nodes`` in
    ``/dev``."""
    for name in ("dev", "proc", "tmp"):
        (_ROOT / name).mkdir()
    for entry in sorted(source.iterdir()):
        target = _ROOT / entry.name
        if entry.is_symlink():
            target.symlink_to(entry.readlink())
        elif not target.exists():
            _bind(entry, target)
    mount("proc", str(_ROOT / "proc"), "proc", 0)
    for name in ("dev", "tmp"):
        mount("tmpfs", str(_ROOT / name), "tmpfs", 0)
    for name in nodes:
        _bind(Path("/dev", name), _ROOT / "dev" / name)
    for name, link in _LINKS.items():
        (_ROOT / "dev" / name).symlink_to(link)


def _bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    mount(str(source), str(target), None, _BIND)


def _make(path: str, *, is_file: bool) -> None:
    """Create the mount point of a path in the container, if it is missing."""
    target = resolved(_ROOT, Path(path))
    if target.exists():
        return
    ancestor = next(each for each in target.parents if each.exists())
    if not ancestor.is_dir():
        raise _Failed(f"mount {path}: /{ancestor.relative_to(_ROOT)} is not a directory")
    missing = target.relative_to(ancestor)
    wanted = missing.parent if is_file else missing
    replace_directory(ancestor, wanted)
    if is_file:
        target.touch()


# -- without a container runtime ---------------------------------------------------------


def _run(config: dict[str, Any], has_terminal: bool) -> int:
    """Do what a runtime does, and return the exit status of the command."""
    for each in config["mounts"]:
        _mount(each)
    hooks = config.get("hooks") or {}
    for kind in _BEFORE:
        _call_hooks(hooks.get(kind) or (), kind)
    process = config["process"]
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        _become(process, hooks.get("startContainer") or (), has_terminal)
    _call_hooks(hooks.get("poststart") or (), "poststart")
    status = _reap(child)
    for hook in hooks.get("poststop") or ():
        # As in a container runtime, the command has ended, and its status is the result.
        try:
            _call_hooks([hook], "poststop")
        except _Failed as error:
            _warn(f"warning: {error}")
    return status


def _mount(each: Mapping[str, Any]) -> None:
    target = str(resolved(_ROOT, Path(each["destination"])))
    if each["type"] == "tmpfs":
        mount("tmpfs", target, "tmpfs", 0)
        return
    mount(each["source"], target, None, _BIND)
    if "ro" in each.get("options", ()):
        set_read_only(target, True, recursive=True)


_STATUS_OF_HOOKS = {"startContainer": "created", "poststart": "running", "poststop": "stopped"}
"""Status of the container while a hook of this kind runs; ``creating`` for all others."""


def _call_hooks(hooks: Iterable[Mapping[str, Any]], kind: str) -> None:
    # The state that the OCI specification defines for hooks.
    state = {
        "ociVersion": "1.0.2",
        "id": "container",
        "status": _STATUS_OF_HOOKS.get(kind, "creating"),
        "pid": os.getpid(),
        "bundle": str(_STAGE),
    }
    for hook in hooks:
        if problem := _call_hook(hook, json.dumps(state)):
            raise _Failed(f"hook {kind} {hook['path']}: {problem}")


def _call_hook(hook: Mapping[str, Any], state: str) -> str:
    """Call a hook. Return the reason if it failed; empty if it succeeded."""
    seconds = hook.get("timeout") or _HOOK_SECONDS
    try:
        done = subprocess.run(
            hook.get("args") or [hook["path"]],
            executable=hook["path"],
            env=dict(each.split("=", 1) for each in hook.get("env") or ()),
            input=state,
            text=True,
            stdout=sys.stderr,
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"did not exit within {seconds:g} s"
    return f"exit status {done.returncode}" if done.returncode else ""


def _become(
    process: Mapping[str, Any], hooks: Iterable[Mapping[str, Any]], has_terminal: bool
) -> NoReturn:
    """Replace this process by the command."""
    try:
        os.chroot(_ROOT)
        os.chdir(process["cwd"])
        _call_hooks(hooks, "startContainer")
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if has_terminal:
            terminal.take()
        # Otherwise the command could make the mounts of the host's files writable.
        for capability in range(_CAPABILITIES):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability)
        env = dict(each.split("=", 1) for each in process["env"])
        os.execvpe(process["args"][0], process["args"], env)
    except OSError as error:
        command = process["args"][0]
        _fail(f"{command}: cannot be started: {why_not_started(command, error)}")
    except _Failed as error:
        _fail(f"cannot create the container: {error}")


def _reap(child: int) -> int:
    """Wait for the command, and return its status. Orphans of the command are reaped, too, or end
    with this process."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


# -- the end -----------------------------------------------------------------------------


def _exit_as(status: int) -> NoReturn:
    # The child of a fork must not run the exit handlers that it has from its parent.
    os._exit(status if status >= 0 else 128 - status)


def _warn(text: str) -> None:
    os.write(2, f"devicemanager: {text}\n".encode(errors="replace"))


def _fail(text: str) -> NoReturn:
    _warn(text)
    os._exit(_CANNOT_START)


if __name__ == "__main__":
    main(sys.argv[1])
