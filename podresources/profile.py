"""What differs between versions of the kubelet's PodResources API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from podresources.values import Allocatable, ClaimResource, Container, DynamicResource, Pod


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Profile:
    """Methods, pods and fields of v1 responses; by default all.

    A missing field is absent on the wire, and a missing method is UNIMPLEMENTED, because this
    is how clients distinguish versions.
    """

    has_get_allocatable: bool = True
    get_allocatable_disabled: str = ""
    """If not empty, GetAllocatableResources fails with this error: its feature gate is off."""
    has_get: bool = True
    get_enabled: bool = True
    """False if Get fails because its feature gate is off."""
    list_inactive: bool = True
    """True if List includes rejected and finished pods; v1alpha1 always does."""
    get_inactive: bool = True
    """True if Get returns rejected and finished pods."""
    memory: bool = True
    share_id: bool = True
    dynamic_resources: bool = True
    claim_devices: bool = True
    """True if a claim's resource has device, pool and driver names."""
    repeats_cdi: bool = False
    """True if a claim's resource also has the CDI devices of earlier resources of the same
    driver (Q26)."""
    sidecars: bool = True
    """True if restartable init containers are included."""
    groups_devices: bool = False
    """True if all devices of a resource on one NUMA node share one entry."""

    counted: tuple[str, ...] = ("list", "get_allocatable", "get")
    """Methods with separate metrics."""
    counts_allocatable_twice: bool = False
    """True if GetAllocatableResources counts twice in the total."""

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
        """Return the pod without the fields that the version lacks."""
        # The usual case. A new object would also be encoded again, because the view compares
        # pods by identity.
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
        """Return the value without the fields that the version lacks."""
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
        """Adapt a claim's resource; ``before`` has the CDI devices so far, by driver."""
        if self.repeats_cdi:
            names = before[each.driver_name] = before.get(each.driver_name, ()) + each.cdi_devices
            each = attrs.evolve(each, cdi_devices=names)
        if not self.share_id:
            each = attrs.evolve(each, share_id=None)
        if not self.claim_devices:
            each = attrs.evolve(each, driver_name="", pool_name="", device_name="")
        return each


ALL = Profile()
"""All methods, pods and fields."""
