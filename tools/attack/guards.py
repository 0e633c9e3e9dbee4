"""The bug that each attack guards against, and a planted bug with which the attack must fail.

Entries are patterns of names; the first one that matches an attack counts. A planted bug (see
``tools.harness.planted``) stands for the family of bugs that the text names. If gRPC or the kernel
is the guard, the planted bug puts a careless server in front of gRPC.
"""

from __future__ import annotations

import fnmatch
from typing import Final, NamedTuple


class Guard(NamedTuple):
    """Bug that an attack guards against."""

    bug: str
    """The bug, as it would affect a user."""
    planted: str
    """Name of a planted bug with which the attack must fail."""


_COUNTED, _DIALED = "lists are counted with the lock held", "one plugin is dialed at a time"
_SERVED, _STARTED = "each connection has a thread", "checkpoints are any JSON"

GUARDS: Final[dict[str, Guard]] = {
    "escape-sequences": Guard("a plugin controls the terminal", "output is not escaped"),
    "names-control": Guard("a plugin forges lines of the log", "names are not quoted"),
    "names-4mb": Guard("texts of a plugin fill the memory", "texts are not cut"),
    "control-silent": Guard("silent clients keep all connections", "silent clients stay connected"),
    "control-slow": Guard("slow clients keep all connections", "silent clients stay connected"),
    "control-bodies": Guard("bodies of requests fill the memory", "bodies are not counted"),
    "control-waits": Guard("waiting clients exhaust the threads", "each wait has a thread"),
    "control-unread": Guard("unread streams fill the memory", "responses are buffered"),
    "control-calls": Guard("readers delay the plugins", "calls are read with the lock held"),
    "control-garbage": Guard("closed connections leave descriptors", "descriptors stay open"),
    "http-pages": Guard("open pages exhaust the threads", "each page has a thread"),
    "http-unread": Guard("unread responses fill the memory", "responses are buffered"),
    "http-flood": Guard("readers delay admissions", "pods are listed with the lock held"),
    "api-silent": Guard("silent clients lock out others", "idle API clients keep their places"),
    "api-slow": Guard("slow clients lock out others", "idle API clients keep their places"),
    "api-watches": Guard("watches lock out other requests", "watches take all connections"),
    "api-copies": Guard("a patch fills the memory", "patches copy without limit"),
    "api-bomb": Guard("references fill the memory", "references are expanded"),
    "spdy-silent": Guard("silent clients keep all connections", "silent clients stay connected"),
    "spdy-slow": Guard("slow clients keep all connections", "each byte extends the time"),
    "spdy-streams": Guard("streams fill the memory", "streams have no limit"),
    "spdy-headers": Guard("headers fill the memory", "headers have no limit"),
    "spdy-unread": Guard("unread responses fill the memory", "SPDY clients are not paused"),
    "spdy-pings": Guard("unread pings fill the memory", "SPDY clients are not paused"),
    "spdy-long-pings": Guard("long pings fill the memory", "frames have no limit"),
    "spdy-frames": Guard("one client delays the requests of others", "each frame copies the rest"),
    "nri-hang": Guard("an NRI plugin stops all pods", "NRI calls have no limit"),
    "nri-silent": Guard("silent connections lock out NRI plugins", "silent NRI clients stay"),
    "nri-updates": Guard("updates fill the memory", "unknown fields are stored"),
    "manifest-hung": Guard("one plugin delays the pods of others", "manifests wait for each other"),
    "manifest-bomb": Guard("references fill the memory", "references are expanded"),
    "manifest-nested": Guard("deep nesting crashes the parser", "YAML is not limited"),
    "manifest-*": Guard("a file blocks its reader, or fills the memory", "any file is read"),
    "cdi-bomb*": Guard("references fill the memory", "references are expanded"),
    "cdi-nested": Guard("deep nesting crashes the parser", "YAML is not limited"),
    "cdi-fifo": Guard("a file blocks its reader", "any file is read"),
    "cdi-zero": Guard("an endless file fills the memory", "any file is read"),
    "cdi-sparse": Guard("a huge file fills the memory", "any file is read"),
    "cdi-*": Guard("an unusual value stops the reading of all files", "a bad CDI file is an error"),
    "checkpoint-fifo": Guard("the checkpoint blocks the start", "any checkpoint is read"),
    "checkpoint-zero": Guard("the checkpoint fills the memory", "any checkpoint is read"),
    "checkpoint-sparse": Guard("the checkpoint fills the memory", "any checkpoint is read"),
    "checkpoint-repeated-keys": Guard("the start takes minutes", _STARTED),
    "checkpoint-*": Guard("a damaged checkpoint crashes the start", _STARTED),
    "link-itself": Guard("the kubelet deletes files that are not sockets", "files are removed"),
    "link-*": Guard("the kubelet deletes files behind a link", "a link is followed"),
    "shared-directory": Guard("other users replace sockets", "any directory is used"),
    "leftover-sockets": Guard("sockets of killed kubelets accumulate", "leftovers stay"),
    "umask-0": Guard("any user can connect", "the mode follows the umask"),
    "descriptors-40": Guard(
        "a start with enough descriptors fails", "too many descriptors are needed"
    ),
    "descriptors-*": Guard(
        "the start hangs without a cause", "the error does not name descriptors"
    ),
    "memory-140": Guard("gRPC aborts the process", "memory is not checked"),
    "memory-*": Guard("a start with enough memory fails", "threads have large stacks"),
    "register-990*": Guard(
        "plugins exhaust threads and descriptors", "processes register without limit"
    ),
    "register-no-options": Guard(
        "silent plugins exhaust the threads", "processes register without limit"
    ),
    "register-gzip": Guard("compressed requests fill the memory", "messages have no limit"),
    "register-unread": Guard(
        "unread responses fill the memory", "clients that do not read stay connected"
    ),
    "register-*": Guard("plugins that do not respond delay others", _DIALED),
    "watcher-silent": Guard("plugins that do not respond delay others", _DIALED),
    "watcher-deep": Guard(
        "directories in plugins_registry delay plugins", "directories are searched"
    ),
    "watcher-flood": Guard("files in plugins_registry delay plugins", "any file is opened"),
    "plugins-flood": Guard("files in device-plugins delay plugins", "any file is opened"),
    "list-unread-forever": Guard(
        "unread responses fill the memory", "clients that do not read stay connected"
    ),
    "list-unread*": Guard("unread responses fill the memory", "unread responses are not counted"),
    "dra-answers-4mb-*": Guard("responses fill the state file", "drivers respond without limit"),
    "dra-answers-names": Guard("responses fill the state file", "drivers respond without limit"),
    "dra-answers-errors": Guard("texts of a driver fill the memory", "texts are not cut"),
    "dra-answers-unknown": Guard("a driver forges lines of the log", "texts are not escaped"),
    "dra-hang": Guard("one driver delays the pods of others", "calls to drivers hold the lock"),
    "dra-*-1000": Guard(
        "drivers exhaust threads and descriptors", "drivers register without limit"
    ),
    "dra-flap": Guard(
        "drivers that leave delay others", "connections are closed on the event loop"
    ),
    "dra-health-names": Guard("health reports fill the memory", "device names are not limited"),
    "dra-health-4mb": Guard("health reports fill the memory", "reported devices are not limited"),
    "dra-health-shortest": Guard(
        "health reports fill the memory", "reported devices are not limited"
    ),
    "dra-health-changes": Guard(
        "reports delay the pods of others", "reports are stored with the lock held"
    ),
    "dra-health-invalid": Guard("a report stops a thread", "undecodable reports are errors"),
    "dra-health-file-fifo": Guard("dra_health_state stops the start", "any checkpoint is read"),
    "dra-health-file-zero": Guard("dra_health_state fills the memory", "any checkpoint is read"),
    "dra-health-file-sparse": Guard("dra_health_state fills the memory", "any checkpoint is read"),
    "dra-health-file-*": Guard(
        "dra_health_state stops the start", "an invalid health file is an error"
    ),
    "dra-state-fifo": Guard("dra_manager_state blocks the start", "any checkpoint is read"),
    "dra-state-zero": Guard("dra_manager_state fills the memory", "any checkpoint is read"),
    "dra-state-sparse": Guard("dra_manager_state fills the memory", "any checkpoint is read"),
    "dra-state-*": Guard("dra_manager_state crashes the start", _STARTED),
    "list-flood-clients": Guard("clients delay plugins", "pods are listed with the lock held"),
    "list-gzip": Guard("compressed lists fill the memory", "messages have no limit"),
    "list-*": Guard("a device list blocks the kubelet", _COUNTED),
    "answers-*": Guard("Allocate responses fill the memory", "responses are copied"),
    "output-unread": Guard("a full pipe blocks the kubelet", "output blocks the kubelet"),
    "fork-exit": Guard("a child deletes its parent's directory", "a child stops its parent"),
    "file-size": Guard("a failed write loses or forges an admission", "failed writes are ignored"),
    "disk-full": Guard("a failed write loses or forges an admission", "failed writes are ignored"),
    "half-open": Guard("half-open connections exhaust the threads", _SERVED),
    "rst-storm": Guard("cancelled calls fill the memory", "each call is remembered"),
    "metadata-flood": Guard("metadata fills the memory", "metadata is stored"),
    "clients-1000": Guard("clients exhaust the threads", _SERVED),
    "connections-flood": Guard("connections exhaust the threads", _SERVED),
    "garbage": Guard("closed connections leave descriptors", "descriptors stay open"),
}
"""What the attacks guard against, by pattern of their names."""


def guard_of(attack: str) -> Guard:
    """Return what an attack guards against. Raises KeyError if the table lacks the attack."""
    for pattern, guard in GUARDS.items():
        if fnmatch.fnmatch(attack, pattern):
            return guard
    raise KeyError(f"attack {attack} is not in tools/attack/guards.py: add the bug it looks for")
