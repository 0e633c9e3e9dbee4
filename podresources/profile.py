"""What a kubelet's PodResources API has, where versions differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from podresources.values import Allocatable, ClaimResource, Container, DynamicResource, Pod

__all__ = ["ALL", "Profile"]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Profile:
    """Methods, pods and fields that the v1 answers have; by default all.

    A field that is left out looks on the wire as in a version that does not know it, and a
    method is UNIMPLEMENTED: clients tell versions apart by just that.
    """

    has_get_allocatable: bool = True
    get_allocatable_disabled: str = ""
    """Not empty: GetAllocatableResources answers with this error, its feature gate is off."""
    has_get: bool = True
    get_enabled: bool = True
    """Whether Get answers, or tells that its feature gate is off."""
    list_inactive: bool = True
    """Whether List tells of pods that were rejected or have finished; v1alpha1 always does."""
    get_inactive: bool = True
    """Whether Get answers for them."""
    memory: bool = True
    share_id: bool = True
    dynamic_resources: bool = True
    claim_devices: bool = True
    """Whether a claim's resource names its device, pool and driver."""
    repeats_cdi: bool = False
    """Whether a claim's resource tells the CDI devices of those before it, of the same
    driver, as well."""
    sidecars: bool = True
    """Whether restartable init containers are told of."""
    groups_devices: bool = False
    """Whether the devices of a resource on one node are told together, and not each alone."""

    counted: tuple[str, ...] = ("list", "get_allocatable", "get")
    """The methods whose calls have metrics of their own."""
    counts_allocatable_twice: bool = False
    """Whether GetAllocatableResources counts twice in the total of calls."""

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
        """The pod without the fields that there are not."""
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
        """The same of the node's resources."""
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
        """``before``: the CDI devices told so far, by driver."""
        if self.repeats_cdi:
            told = before[each.driver_name] = before.get(each.driver_name, ()) + each.cdi_devices
            each = attrs.evolve(each, cdi_devices=told)
        if not self.share_id:
            each = attrs.evolve(each, share_id=None)
        if not self.claim_devices:
            each = attrs.evolve(each, driver_name="", pool_name="", device_name="")
        return each


ALL = Profile()
"""Everything that there is."""
