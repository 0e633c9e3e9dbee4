"""The bug that each attack guards against, and a planted bug with which the attack must fail.

Entries are patterns of names; the first one that matches an attack counts. A planted bug (see
``tools.harness.planted``) stands for the family of bugs that the text names. Without one, the
entry's text says why: the guard is gRPC or the kernel, or the attack measures a cost that no single
line of this project causes.
"""

from __future__ import annotations

import fnmatch
from typing import Final, NamedTuple


class Guard(NamedTuple):
    """What an attack guards against."""

    bug: str
    """The bug, as it would affect a user."""
    planted: str = ""
    """Name of a planted bug that turns the attack red; empty if there is none."""


GUARDS: Final[dict[str, Guard]] = {
    "escape-sequences": Guard("a plugin controls the terminal", "output is not escaped"),
    "names-control": Guard("a plugin forges lines of the log", "texts are not escaped"),
    "names-4mb": Guard("texts of a plugin fill the memory", "texts are not cut"),
    "control-silent": Guard("silent clients keep all connections", "silent clients stay connected"),
    "control-slow": Guard("slow clients keep all connections", "silent clients stay connected"),
    "control-*": Guard("one client stops the control API, or fills the memory"),
    "http-*": Guard("one client stops the HTTP server, or fills the memory"),
    "manifest-hung": Guard("one plugin delays the pods of others"),
    "manifest-bomb": Guard("references fill the memory", "references are expanded"),
    "manifest-nested": Guard("deep nesting crashes the parser", "YAML is not limited"),
    "manifest-*": Guard("a file blocks its reader, or fills the memory", "any file is read"),
    "cdi-bomb*": Guard("references fill the memory", "references are expanded"),
    "cdi-nested": Guard("deep nesting crashes the parser", "YAML is not limited"),
    "cdi-fifo": Guard("a file blocks its reader", "any file is read"),
    "cdi-zero": Guard("an endless file fills the memory", "any file is read"),
    "cdi-sparse": Guard("a huge file fills the memory", "any file is read"),
    "cdi-*": Guard("an unusual value stops the reading of all files"),
    "checkpoint-fifo": Guard("the checkpoint blocks the start", "any checkpoint is read"),
    "checkpoint-zero": Guard("the checkpoint fills the memory", "any checkpoint is read"),
    "checkpoint-sparse": Guard("the checkpoint fills the memory", "any checkpoint is read"),
    "checkpoint-*": Guard("a damaged checkpoint crashes the start"),
    "link-itself": Guard("a link stops the start"),
    "link-*": Guard("the kubelet deletes files behind a link", "a link is followed"),
    "shared-directory": Guard("other users replace sockets", "any directory is used"),
    "leftover-sockets": Guard("sockets of killed kubelets accumulate", "leftovers stay"),
    "umask-0": Guard("any user can connect", "the mode follows the umask"),
    "descriptors-*": Guard("the start hangs without a cause", "descriptors are not checked"),
    "memory-120": Guard("gRPC aborts the process", "memory is not checked"),
    "memory-*": Guard("gRPC aborts the process"),
    "register-990*": Guard(
        "plugins exhaust threads and descriptors", "processes register without limit"
    ),
    "register-*": Guard("plugins that do not respond delay others"),
    "watcher-*": Guard("files in plugins_registry delay plugins"),
    "plugins-flood": Guard("files in device-plugins delay plugins"),
    "list-unread*": Guard("unread responses fill the memory", "unread responses are not counted"),
    "list-flood-clients": Guard("clients without a limit delay plugins"),
    "list-*": Guard("a device list blocks the kubelet, or fills the memory"),
    "dra-answers-4mb-claims": Guard("a response of a driver delays the pods of others"),
    "dra-answers-4mb-*": Guard("responses fill the state file", "drivers respond without limit"),
    "dra-answers-names": Guard("responses fill the state file", "drivers respond without limit"),
    "dra-answers-errors": Guard("texts of a driver fill the memory", "texts are not cut"),
    "dra-answers-unknown": Guard("a driver forges lines of the log", "texts are not escaped"),
    "dra-answers-*": Guard("a wrong response stops the DRA manager"),
    "dra-hang": Guard("one driver delays the pods of others", "calls to drivers hold the lock"),
    "dra-*-1000": Guard(
        "drivers exhaust threads and descriptors", "processes register without limit"
    ),
    "dra-flap": Guard("drivers that left use descriptors", "connections to drivers stay open"),
    "dra-reconnect": Guard("connections that break delay the pods of others"),
    "dra-health-names": Guard("health reports fill the memory", "device names are not limited"),
    "dra-health-4mb": Guard("health reports fill the memory", "reported devices are not limited"),
    "dra-health-file-*": Guard("dra_health_state stops the start", "any checkpoint is read"),
    "dra-health-*": Guard("health reports delay the pods of others"),
    "dra-state-*": Guard("dra_manager_state stops the start", "any checkpoint is read"),
    "answers-*": Guard("Allocate responses fill the memory or the checkpoint"),
    "output-unread": Guard("a full pipe blocks the kubelet", "output blocks the kubelet"),
    "fork-exit": Guard("a child deletes its parent's directory", "a child stops its parent"),
    "file-size": Guard("a failed write loses or forges an admission"),
    "disk-full": Guard("a failed write loses or forges an admission"),
    "half-open": Guard("half-open connections block a socket; gRPC's limits"),
    "rst-storm": Guard("cancelled calls occupy the kubelet; gRPC's limits"),
    "metadata-flood": Guard("metadata fills the memory; gRPC's limits"),
    "clients-1000": Guard("connections need a thread each; gRPC's threads"),
    "connections-flood": Guard("connections exhaust the descriptors"),
    "garbage": Guard("other protocols crash a server; gRPC's parser"),
}
"""What the attacks guard against, by pattern of their names."""


def guard_of(attack: str) -> Guard:
    """Return what an attack guards against. Raises KeyError if the table lacks the attack."""
    for pattern, guard in GUARDS.items():
        if fnmatch.fnmatch(attack, pattern):
            return guard
    raise KeyError(f"attack {attack} is not in tools/attack/guards.py: add the bug it looks for")
