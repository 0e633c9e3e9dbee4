"""A pod as far as device allocation looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import chain, repeat

import attrs

from devicemanager.core.ids import ContainerName, PodUid, ResourceName


class RestartPolicy(StrEnum):
    """``spec.restartPolicy``: which containers the kubelet starts again when they end."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


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
    claims: tuple[str, ...] = ()
    """``resources.claims``: names that the pod gives its resource claims."""
    image: str = attrs.field(default="", eq=False)
    """For the pod's status alone: nothing is decided by it."""


@attrs.frozen
class Pod:
    """A pod spec: identity and containers, in the order of the manifest."""

    uid: PodUid
    name: str
    namespace: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    resource_claims: Mapping[str, str | None] = attrs.field(factory=dict)
    """``spec.resourceClaims``: the name in the pod to the name of the claim, which is in the
    pod's namespace; None for one that is to be made from a template."""
    termination_grace_period: int = 30
    """``spec.terminationGracePeriodSeconds``: what its containers have to end when it is
    deleted."""
    has_resources: bool = False
    """Whether there is a ``spec.resources``, for the pod as a whole."""
    backed: frozenset[tuple[ContainerName, ResourceName]] = frozenset()
    """The containers' extended resources that a resource claim provides, and no plugin
    (``status.extendedResourceClaimStatus``)."""

    def without_sidecars(self) -> Pod:
        """The pod under a kubelet that knows no restartable init containers."""
        if not any(container.restartable for container in self.init_containers):
            return self
        ordinary = tuple(attrs.evolve(each, restartable=False) for each in self.init_containers)
        return attrs.evolve(self, init_containers=ordinary)

    def without_backed(self, *, limits: bool) -> Pod:
        """The pod without requests for what a resource claim provides; ``limits``: it does
        not count as asked for at all, so that no plugin is."""

        def strip(amounts: Amounts, container: Container) -> Amounts:
            return {
                name: amount
                for name, amount in amounts.items()
                if (container.name, name) not in self.backed
            }

        def stripped(container: Container) -> Container:
            return attrs.evolve(
                container,
                requests=strip(container.requests, container),
                limits=strip(container.limits, container) if limits else container.limits,
            )

        return attrs.evolve(
            self,
            containers=tuple(map(stripped, self.containers)),
            init_containers=tuple(map(stripped, self.init_containers)),
        )

    def all_containers(self) -> Iterator[tuple[Container, bool]]:
        """Every container in admission order, with whether it is an init container."""
        return chain(zip(self.init_containers, repeat(True)), zip(self.containers, repeat(False)))


def effective_request(pod: Pod, request_of: Callable[[Container], int]) -> int:
    """What the pod needs at its neediest moment.

    Restartable init containers stay, so they add to every step after them; ordinary
    ones come and go. ``PodRequests`` of k8s.io/component-helpers/resource (v1.32).
    """
    staying = largest_step = 0
    for container in pod.init_containers:
        request = request_of(container)
        if container.restartable:
            staying += request
        else:
            largest_step = max(largest_step, staying + request)
    running = staying + sum(request_of(container) for container in pod.containers)
    return max(running, largest_step)


Amounts = Mapping[ResourceName, int]
"""A container's limits or requests."""


def pod_requests(pod: Pod, amounts_of: Callable[[Container], Amounts]) -> Amounts:
    """``effective_request`` of every resource that a container names, sorted by name."""
    if len(pod.containers) == 1 and not pod.init_containers:
        amounts = amounts_of(pod.containers[0])
        return {name: amounts[name] for name in sorted(amounts)}
    names = {name for container, _ in pod.all_containers() for name in amounts_of(container)}

    def effective(name: ResourceName) -> int:
        return effective_request(pod, lambda container: amounts_of(container).get(name, 0))

    return {name: effective(name) for name in sorted(names)}
