"""Rules for the kubelet's sockets, for plugins, and for their devices."""

from __future__ import annotations

from collections.abc import Iterator

from devicemanager.core.printable import counted, listed
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import Listening
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules.finding import Finding, Kind, Severity

__all__ = ["KUBELET_RULES", "RULES"]

_MOST_SHOWN = 20


def not_serving(node: Node) -> Iterator[Finding]:
    """Find a kubelet that does not serve PodResources."""
    part = node.snapshot.part(layout.POD_RESOURCES)
    socket = node.kubelet_socket("pod-resources")
    if part is None or part.problem is None:
        return
    if part.absent:
        seen = f"there is no socket at {part.source}"
    elif socket is not None and socket.state is Listening.DEAD:
        seen = f"no process is listening on {part.source}"
    else:
        return  # the reason may be missing permission; the report shows it
    yield Finding(
        Kind.KUBELET_NOT_SERVING, Severity.ERROR, "the kubelet does not serve PodResources", (seen,)
    )


def registration_closed(node: Node) -> Iterator[Finding]:
    """Find a kubelet that does not accept registrations of plugins."""
    part = node.snapshot.part(layout.SOCKETS)
    if part is None or node.snapshot.sockets is None:
        return
    socket = node.kubelet_socket("device-plugins")
    if socket is None:
        seen = f"there is no kubelet.sock in {part.source}"
    elif socket.state is Listening.DEAD:
        seen = f"no process is listening on {socket.path}"
    else:
        return
    yield Finding(Kind.REGISTRATION_CLOSED, Severity.ERROR, "no plugin can register", (seen,))


def without_plugin(node: Node) -> Iterator[Finding]:
    """Find resources that are in use or in the checkpoint, but have no allocatable device."""
    # Without this list, each resource would seem to have no allocatable device.
    if node.allocatable is None:
        return
    # Include resources that only checkpoint entries name: their plugin may have exited long ago.
    in_use = {resource for resource, _ in (*node.allocated_to, *node.saved_for)}
    for resource in sorted({*node.registered, *in_use} - node.allocatable.keys()):
        ids = node.registered.get(resource, frozenset())
        pods = sorted(
            {n for key, names in node.allocated_to.items() if key[0] == resource for n in names}
        )
        message = f"{resource}: no device is allocatable"
        if ids:
            message += f", but the checkpoint has {counted(len(ids), 'healthy device')}"
        details = [node.sockets_text()] if node.snapshot.sockets is not None else []
        if pods:
            details.append(f"in use by {', '.join(pods)}")
        yield Finding(
            Kind.RESOURCE_WITHOUT_PLUGIN,
            Severity.ERROR,
            message,
            tuple(details),
            resource,
            tuple(sorted(ids)),
            tuple(pods),
        )


def not_allocatable(node: Node) -> Iterator[Finding]:
    """Find free devices that are healthy in the checkpoint but not allocatable.

    The kubelet saves each device list, so the checkpoint has the devices that were healthy in the
    last list.
    """
    for resource, allocatable in sorted((node.allocatable or {}).items()):
        registered = node.registered.get(resource, frozenset())
        # Skip allocated devices: another rule reports them with a higher severity.
        missing = sorted(
            id_ for id_ in registered - allocatable if (resource, id_) not in node.allocated_to
        )
        if missing:
            yield Finding(
                Kind.DEVICES_NOT_OFFERED,
                Severity.WARNING,
                f"{resource}: devices that are healthy in the checkpoint but not allocatable: "
                f"{listed(missing, _MOST_SHOWN)}",
                (),
                resource,
                tuple(missing),
            )


def allocated_not_allocatable(node: Node) -> Iterator[Finding]:
    """Find allocated devices that are not allocatable. A restarted kubelet rejects their pods."""
    for resource, allocatable in sorted((node.allocatable or {}).items()):
        for (name, id_), pods in sorted(node.allocated_to.items()):
            # After a restart, a kubelet admits its pods again, and rejects those with such devices.
            if name == resource and id_ not in allocatable:
                yield Finding(
                    Kind.HELD_NOT_OFFERED,
                    Severity.ERROR,
                    f"device {id_} of {resource}, allocated to {', '.join(pods)}, is not "
                    "allocatable: it is unhealthy, or its plugin does not list it",
                    (),
                    resource,
                    (id_,),
                    pods,
                )


def stale_sockets(node: Node) -> Iterator[Finding]:
    """Find sockets of plugins that have exited."""
    # The severity is only WARNING: the kubelet ignores sockets in its plugin directory until a
    # plugin registers them.
    for socket in node.plugin_sockets:
        if socket.state is Listening.DEAD:
            yield Finding(
                Kind.DEAD_SOCKET,
                Severity.WARNING,
                f"no process is listening on the socket {socket.path}",
            )


KUBELET_RULES = (not_serving, registration_closed)
RULES = (without_plugin, allocated_not_allocatable, not_allocatable, stale_sockets)
