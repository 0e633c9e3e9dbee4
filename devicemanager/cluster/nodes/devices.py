"""What may go wrong with the devices of a node in the cluster."""

from __future__ import annotations

from typing import cast

from devicemanager.cluster.kubelet import DeviceFaults, NodeKubelet
from devicemanager.core.errors import RequestError

__all__ = ["NodeDevices"]


class NodeDevices:
    """Methods of a node. Those about devices raise RequestError for one that is not there, and
    for a node whose devices are its plugin's."""

    kubelet: NodeKubelet

    def look(self) -> None:
        """Write the node's status soon, if it has changed."""
        raise NotImplementedError

    def _devices(self) -> DeviceFaults:
        """Whoever breaks our devices."""
        if not hasattr(self.kubelet, "fail_device"):
            raise RequestError("the node has plugins of its own: their devices are theirs to break")
        return cast(DeviceFaults, self.kubelet)

    def fail_device(self, resource: str, device: str) -> None:
        """The device becomes unhealthy."""
        self._devices().fail_device(resource, device)
        self.look()

    def recover_device(self, resource: str, device: str) -> None:
        """The device becomes healthy."""
        self._devices().recover_device(resource, device)
        self.look()

    def lose_device(self, resource: str, device: str) -> None:
        """The device is not listed any more."""
        self._devices().lose_device(resource, device)
        self.look()

    def return_device(self, resource: str, device: str) -> None:
        """The device that was lost is listed again."""
        self._devices().return_device(resource, device)
        self.look()

    def zero_capacity(self, resource: str, zero: bool = True) -> None:
        """The plugin lists nothing, until the opposite is said."""
        devices = self._devices()
        (devices.lose_all if zero else devices.return_all)(resource)
        self.look()

    def stop_plugin(self, resource: str) -> None:
        """The plugin ends: its devices are unhealthy, and gone after the grace period."""
        self._devices().stop_plugin(resource)
        self.look()

    def start_plugin(self, resource: str) -> None:
        """The plugin that ended registers again."""
        self._devices().start_plugin(resource)
        self.look()
