"""Run a command with a container's environment variables, mounts, device nodes and hooks.

Theory of operation. ``kubelet.runtime.oci`` renders a part of an OCI configuration
(``Fragment.config``). ``bundling`` completes this configuration so that the container needs no
root, and lists what is left out. ``running`` passes the configuration to a process,
``python -m devicemanager.sandbox.inside``. This process enters new user, mount and PID namespaces,
and builds a root directory in memory from the host's directories. Then ``crun`` or ``runc`` runs
the container, or the process itself makes the mounts and runs the command.

In:  a ``Fragment.config``, a command, and optionally a root file system.
Out: the exit status of the command, and notes for the user.

Invariants:

* Root is not needed. The root file system is read-only, except for in-memory directories.
* All changes are inside the namespaces. If the calling process is killed, the kernel kills all
  processes of the container. Nothing is left on disk.

Start reading with ``running``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.sandbox.bundling import Bundle, bundle
    from devicemanager.sandbox.running import SandboxError, backends, run

__all__ = ["Bundle", "SandboxError", "backends", "bundle", "run"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Bundle": "bundling",
        "SandboxError": "running",
        "backends": "running",
        "bundle": "bundling",
        "run": "running",
    },
)
