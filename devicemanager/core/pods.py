"""A pod as far as device allocation looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from devicemanager.core.ids import ContainerName, PodUid, ResourceName


@attrs.frozen
class Container:
    """One container of a pod spec.

    ``limits`` maps every resource in ``resources.limits`` to a whole number: devices
    for extended resources, milli-CPUs for ``cpu``, bytes for ``memory`` and hugepages.
    ``requests`` holds those of the same units that were given or defaulted.
    ``restartable`` is true for an init container with ``restartPolicy: Always``.
    """

    name: ContainerName
    limits: Mapping[ResourceName, int] = attrs.field(factory=dict)
    requests: Mapping[ResourceName, int] = attrs.field(factory=dict)
    restartable: bool = False


@attrs.frozen
class Pod:
    """A pod spec: identity and containers, in the order of the manifest."""

    uid: PodUid
    name: str
    namespace: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()

    def all_containers(self) -> Iterator[tuple[Container, bool]]:
        """Every container in admission order, with whether it is an init container."""
        for container in self.init_containers:
            yield container, True
        for container in self.containers:
            yield container, False
