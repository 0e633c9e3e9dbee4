"""What can be wrong with the kubelet's sockets, the plugins and the devices they offer."""

from __future__ import annotations

from collections.abc import Iterator

from devicemanager.core.printable import listed
from devicemanager.snapshot import layout
from devicemanager.snapshot.model import Listening
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules.finding import Finding, Kind, Severity

__all__ = ["RULES"]

_SHOWN = 20


def not_serving(node: Node) -> Iterator[Finding]:
    part = node.snapshot.part(layout.POD_RESOURCES)
    socket = node.kubelet_socket("pod-resources")
    if part is None or part.problem is None:
        return
    if part.absent:
        seen = f"there is no socket at {part.source}"
    elif socket is not None and socket.state is Listening.DEAD:
        seen = f"nobody listens on {part.source}"
    else:
        return  # nobody knows; the report says that it could not be asked
    yield Finding(
        Kind.KUBELET_NOT_SERVING, Severity.ERROR, "the kubelet does not serve PodResources", (seen,)
    )


def registration_closed(node: Node) -> Iterator[Finding]:
    part = node.snapshot.part(layout.SOCKETS)
    if part is None or node.snapshot.sockets is None:
        return
    socket = node.kubelet_socket("device-plugins")
    if socket is None:
        seen = f"there is no kubelet.sock in {part.source}"
    elif socket.state is Listening.DEAD:
        seen = f"nobody listens on {socket.path}"
    else:
        return
    yield Finding(Kind.REGISTRATION_CLOSED, Severity.ERROR, "no plugin can register", (seen,))


def without_plugin(node: Node) -> Iterator[Finding]:
    """Resources that the checkpoint knows and the kubelet offers nothing of."""
    if node.offered is None:
        return
    held = {resource for resource, _ in (*node.holders, *node.entries)}
    for resource in sorted({*node.registered, *held} - node.offered.keys()):
        ids = node.registered.get(resource, frozenset())
        holders = sorted(
            {n for key, names in node.holders.items() if key[0] == resource for n in names}
        )
        message = f"{resource}: no device is allocatable"
        if ids:
            message += f", and the checkpoint has {len(ids)} healthy ones"
        details = [node.sockets_in_words()] if node.snapshot.sockets is not None else []
        if holders:
            details.append(f"in use by {', '.join(holders)}")
        yield Finding(
            Kind.RESOURCE_WITHOUT_PLUGIN,
            Severity.ERROR,
            message,
            tuple(details),
            resource,
            tuple(sorted(ids)),
            tuple(holders),
        )


def not_offered(node: Node) -> Iterator[Finding]:
    """Some of a resource's devices that nobody holds: every list that a plugin sends is in the
    checkpoint."""
    for resource, offered in sorted((node.offered or {}).items()):
        registered = node.registered.get(resource, frozenset())
        away = sorted(id_ for id_ in registered - offered if (resource, id_) not in node.holders)
        if away:
            yield Finding(
                Kind.DEVICES_NOT_OFFERED,
                Severity.WARNING,
                f"{resource}: {len(away)} devices are healthy in the checkpoint and not "
                f"allocatable: {listed(away, _SHOWN)}",
                (),
                resource,
                tuple(away),
            )


def held_not_offered(node: Node) -> Iterator[Finding]:
    for resource, offered in sorted((node.offered or {}).items()):
        for (name, id_), pods in sorted(node.holders.items()):
            if name == resource and id_ not in offered:
                yield Finding(
                    Kind.HELD_NOT_OFFERED,
                    Severity.ERROR,
                    f"device {id_} of {resource}, held by {', '.join(pods)}, is not allocatable: "
                    "it is unhealthy, or its plugin does not list it",
                    (),
                    resource,
                    (id_,),
                    pods,
                )


def dead_sockets(node: Node) -> Iterator[Finding]:
    for socket in node.plugin_sockets:
        if socket.state is Listening.DEAD:
            yield Finding(
                Kind.DEAD_SOCKET, Severity.WARNING, f"nobody listens on the socket {socket.path}"
            )


RULES = (
    not_serving,
    registration_closed,
    without_plugin,
    held_not_offered,
    not_offered,
    dead_sockets,
)
