"""Differences between versions of the kubelet's PodResources API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from podresources.values import Allocatable, ClaimResource, Container, DynamicResource, Pod


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Profile:
    """Methods, pods and fields that one kubelet version has in API v1. By default, all are
    available.

    A field that the version lacks is absent in the encoded message. A method that the version lacks
    fails with UNIMPLEMENTED. Clients recognize a version by its fields and methods.
    """

    has_get_allocatable: bool = True
    get_allocatable_disabled: str = ""
    """Error text of GetAllocatableResources if its feature gate is off; otherwise empty."""
    has_get: bool = True
    get_enabled: bool = True
    """True if the feature gate ``KubeletPodResourcesGet`` is on. If it is off, Get fails."""
    list_inactive: bool = True
    """True if v1 List includes rejected and finished pods. v1alpha1 List always includes them."""
    get_inactive: bool = True
    """True if Get returns rejected and finished pods."""
    memory: bool = True
    share_id: bool = True
    dynamic_resources: bool = True
    claim_devices: bool = True
    """True if responses name the driver, pool and device of each device of a claim."""
    repeats_cdi: bool = False
    """True if a device also gets the CDI devices of earlier devices of the same driver in the claim
    (kubelet bug Q26 in docs/kubelet-behaviour.md)."""
    sidecars: bool = True
    """True if responses include restartable init containers."""
    groups_devices: bool = False
    """True if one entry has all devices of a resource on one NUMA node, as in v1.20."""

    counted: tuple[str, ...] = ("list", "get_allocatable", "get")
    """Methods that have separate metrics."""
    counts_allocatable_twice: bool = False
    """True if each GetAllocatableResources call adds 2 to the metric of all calls."""

    @property
    def _is_whole(self) -> bool:
        return (
            self.memory
            and self.share_id
            and self.sidecars
            and self.dynamic_resources
            and self.claim_devices
            and not self.repeats_cdi
        )

    def pod(self, pod: Pod) -> Pod:
        """Return the pod without the containers and fields that the kubelet version lacks."""
        # Usual case: return the same object. A new object would be encoded again, because the view
        # compares pods by identity.
        if self._is_whole:
            return pod
        containers = tuple(
            self._container(each)
            for each in pod.containers
            if self.sidecars or not each.restartable_init
        )
        memory = pod.memory if self.memory else ()
        return attrs.evolve(pod, containers=containers, memory=memory)

    def allocatable(self, allocatable: Allocatable) -> Allocatable:
        """Return the allocatable resources without the fields that the kubelet version lacks."""
        return allocatable if self.memory else attrs.evolve(allocatable, memory=())

    def _container(self, container: Container) -> Container:
        return attrs.evolve(
            container,
            memory=container.memory if self.memory else (),
            dynamic_resources=tuple(
                self._claim(each) for each in container.dynamic_resources if self.dynamic_resources
            ),
        )

    def _claim(self, claim: DynamicResource) -> DynamicResource:
        before: dict[str, tuple[str, ...]] = {}
        return attrs.evolve(
            claim,
            claim_resources=tuple(self._resource(each, before) for each in claim.claim_resources),
        )

    def _resource(self, each: ClaimResource, before: dict[str, tuple[str, ...]]) -> ClaimResource:
        """Return a device of a claim with the fields of this kubelet version.

        ``before`` has the CDI devices of the claim's earlier devices, by driver. With
        ``repeats_cdi``, this method adds the CDI devices of ``each`` to ``before``.
        """
        if self.repeats_cdi:
            names = before[each.driver_name] = before.get(each.driver_name, ()) + each.cdi_devices
            each = attrs.evolve(each, cdi_devices=names)
        if not self.share_id:
            each = attrs.evolve(each, share_id=None)
        if not self.claim_devices:
            each = attrs.evolve(each, driver_name="", pool_name="", device_name="")
        return each


ALL = Profile()
"""Profile with all methods, pods and fields."""
