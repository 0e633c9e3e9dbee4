"""The fields of a pod that device allocation needs, and the sum of its containers' requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

import attrs

from devicemanager.core.ids import ContainerName, PodUid, ResourceName

Amounts = Mapping[ResourceName, int]
"""Limits or requests of a container or a pod, by resource."""


class RestartPolicy(StrEnum):
    """Restart policy of a pod: which containers the kubelet restarts (``spec.restartPolicy``)."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class RestartRule(NamedTuple):
    """Rule that restarts a container after some exit codes (``restartPolicyRules``)."""

    exit_codes: frozenset[int]
    is_in: bool = True
    """True to match one of ``exit_codes``; False to match all other exit codes."""
    restarts_all: bool = False
    """True if the rule restarts all containers of the pod (the action RestartAllContainers)."""

    def matches(self, exit_code: int) -> bool:
        """True if the rule applies to a container that exited with this code."""
        return (exit_code in self.exit_codes) is self.is_in


NO_ENTRIES: Final[Mapping[Any, Any]] = {}
"""Empty map that all pods share. A separate empty map for each field would take 64 bytes."""


@attrs.frozen
class Container:
    """One container of a pod spec.

    ``limits`` maps each resource in ``resources.limits`` to a whole number: devices for extended
    resources, milli-CPUs for ``cpu``, bytes for ``memory`` and hugepages. ``requests`` has the
    requests in the same units, including requests that default to the limits. ``restartable`` is
    true for an init container with ``restartPolicy: Always`` (a sidecar).
    """

    name: ContainerName
    limits: Mapping[ResourceName, int] = NO_ENTRIES
    requests: Mapping[ResourceName, int] = NO_ENTRIES
    restartable: bool = False
    claims: tuple[str, ...] = ()
    """``resources.claims``: names of the entries of the pod's ``spec.resourceClaims`` that the
    container uses."""
    claim_requests: tuple[tuple[str, str], ...] = ()
    """``resources.claims`` in order, as pairs. The first item is the name of an entry of the pod's
    ``spec.resourceClaims``. The second item is the request whose devices the container uses; an
    empty name stands for all requests of the claim."""
    image: str = attrs.field(default="", eq=False)
    """The image, shown in the pod's status; no decision depends on it."""
    restart_policy: RestartPolicy | None = None
    """Restart policy of an app container; None if the pod's restart policy applies."""
    restart_rules: tuple[RestartRule, ...] = ()
    """Rules that are checked before ``restart_policy``."""
    restarts_on_resize: tuple[str, ...] = ()
    """Resources whose resize restarts the container (``resizePolicy``)."""
    is_ephemeral: bool = False
    """True for an ephemeral container, which is never restarted."""


@attrs.frozen
class Pod:
    """A pod's identity and spec; the containers are in the order of the manifest."""

    uid: PodUid
    name: str
    namespace: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    resource_claims: Mapping[str, str | None] = NO_ENTRIES
    """``spec.resourceClaims``: the name of each entry's ResourceClaim, by the name of the entry.
    None stands for a claim that is created from a template."""
    termination_grace_period: int = 30
    """``spec.terminationGracePeriodSeconds``: seconds in which the containers must exit after
    the pod is deleted."""
    has_resources: bool = False
    """True if the pod has ``spec.resources`` (pod-level resources)."""
    pod_level_requests: Amounts = NO_ENTRIES
    """``spec.resources.requests`` for CPU, memory and hugepages, including requests that default to
    the limits in ``spec.resources``. Units are those of ``Container.requests``."""
    backed: frozenset[tuple[ContainerName, ResourceName]] = frozenset()
    """Pairs of container and extended resource. The container gets this resource from a
    ResourceClaim, not from a plugin (``status.extendedResourceClaimStatus``)."""
    claim_statuses: Mapping[str, str | None] = NO_ENTRIES
    """``status.resourceClaimStatuses``: names of the ResourceClaims that were created from
    templates, by the name of the entry in ``spec.resourceClaims``. None means that the pod needs no
    claim for the entry."""
    extended_claim: str | None = None
    """``status.extendedResourceClaimStatus``: name of the ResourceClaim that provides the pod's
    extended resources."""
    extended_requests: tuple[tuple[ContainerName, ResourceName, str], ...] = ()
    """``status.extendedResourceClaimStatus.requestMappings``: container, resource and request of
    each entry."""
    forbidden_sidecar: ContainerName | None = None
    """Name of the pod's first restartable init container, if the kubelet rejects pods with such
    containers. Otherwise None."""
    ephemeral_containers: tuple[Container, ...] = ()
    """``spec.ephemeralContainers``, which users add to a running pod. They have no resources, and
    do not affect the pod's phase."""

    def restarts(self, container: Container, exit_code: int) -> bool:
        """True if the kubelet restarts a container that exited with this code
        (``ContainerShouldRestart``, pkg/api/v1/pod/util.go, v1.37)."""
        if container.is_ephemeral:
            return False
        if container.restartable or any(
            each.matches(exit_code) for each in container.restart_rules
        ):
            return True
        policy = container.restart_policy or self.restart_policy
        return policy is RestartPolicy.ALWAYS or (
            policy is RestartPolicy.ON_FAILURE and exit_code != 0
        )

    def restarts_all(self, container: Container, exit_code: int) -> bool:
        """True if the kubelet restarts all containers of the pod after ``container`` has exited
        with this code (``FindMatchingContainerRestartRule``, pkg/api/v1/pod/util.go, v1.37)."""
        # As in the kubelet, only the first rule that matches counts.
        for rule in container.restart_rules:
            if rule.matches(exit_code):
                return rule.restarts_all
        return False

    @property
    def can_restart_all(self) -> bool:
        """True if a rule of a container restarts all containers."""
        return any(rule.restarts_all for each in self.containers for rule in each.restart_rules)

    def without_restart_all(self) -> Pod:
        """Return the pod without rules that restart all containers, for a kubelet that does not
        support them."""
        if not self.can_restart_all:
            return self
        containers = (
            attrs.evolve(
                each,
                restart_rules=tuple(rule for rule in each.restart_rules if not rule.restarts_all),
            )
            for each in self.containers
        )
        return attrs.evolve(self, containers=tuple(containers))

    def without_restart_rules(self) -> Pod:
        """Return the pod without the restart policies and restart rules that its containers have,
        for a kubelet that supports only the pod's restart policy."""
        if not any(each.restart_policy for each in self.containers):
            return self
        plain = (attrs.evolve(e, restart_policy=None, restart_rules=()) for e in self.containers)
        return attrs.evolve(self, containers=tuple(plain))

    def without_sidecars(self) -> Pod:
        """Return the pod with its restartable init containers turned into ordinary ones, for a
        kubelet that does not support restartable init containers."""
        if not any(container.restartable for container in self.init_containers):
            return self
        ordinary = tuple(attrs.evolve(each, restartable=False) for each in self.init_containers)
        return attrs.evolve(self, init_containers=ordinary)

    def with_forbidden_sidecars(self) -> Pod:
        """Return a copy of the pod whose ``forbidden_sidecar`` is the name of its first restartable
        init container. For kubelets that reject such pods."""
        names = [each.name for each in self.init_containers if each.restartable]
        return attrs.evolve(self, forbidden_sidecar=names[0]) if names else self

    def without_backed(self, *, limits: bool) -> Pod:
        """Return the pod without requests for the resources that resource claims provide.

        With ``limits``, the limits for these resources are removed, too, so that no plugin is
        called for them.
        """

        # The node check reads requests, and the allocation of devices reads limits.
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
        """Iterate over all containers in admission order.

        Each item is a pair: the container, and True if it is an init container.
        """
        # Ephemeral containers are left out: they have no resources, and are added after the
        # admission.
        return chain(zip(self.init_containers, repeat(True)), zip(self.containers, repeat(False)))


def effective_request(pod: Pod, request_of: Callable[[Container], int]) -> int:
    """Return the largest amount of a resource that the pod needs at any time (``PodRequests``,
    k8s.io/component-helpers/resource, v1.32).

    ``request_of`` returns the amount that one container requests.
    """
    # Sidecars run until the pod ends, so their requests add to those of all later containers.
    # Ordinary init containers run one at a time.
    sidecars = largest_step = 0
    for container in pod.init_containers:
        request = request_of(container)
        if container.restartable:
            sidecars += request
        else:
            largest_step = max(largest_step, sidecars + request)
    running = sidecars + sum(request_of(container) for container in pod.containers)
    return max(running, largest_step)


def pod_requests(pod: Pod, amounts_of: Callable[[Container], Amounts]) -> Amounts:
    """Return the largest amount of each resource that the pod needs at any time, sorted by
    resource.

    ``amounts_of`` returns one container's limits, or its requests.
    """
    # Most pods have one container; the general case below costs a closure per resource.
    if len(pod.containers) == 1 and not pod.init_containers:
        amounts = amounts_of(pod.containers[0])
        return {name: amounts[name] for name in sorted(amounts)}
    names = {name for container, _ in pod.all_containers() for name in amounts_of(container)}

    def effective(name: ResourceName) -> int:
        return effective_request(pod, lambda container: amounts_of(container).get(name, 0))

    return {name: effective(name) for name in sorted(names)}
