"""The interface to a container runtime, as this package calls it; and ``NoRuntime``, which runs no
containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from devicemanager.core.pods import Container, Pod
    from devicemanager.core.runoptions import RunOptions

__all__ = ["ContainerRuntime", "NoRuntime"]


class ContainerRuntime(Protocol):
    """The runtime that starts containers; ``kubelet.nri`` documents the members."""

    def create(self, pod: Pod, container: Container, options: RunOptions) -> RunOptions: ...
    def stop(self, pod: Pod, name: str) -> None: ...
    def remove(self, pod: Pod) -> None: ...
    def reboot(self) -> None: ...


class NoRuntime:
    """The runtime of most tests: containers do not run, and no NRI plugin changes them."""

    __slots__ = ()

    def create(self, pod: Pod, container: Container, options: RunOptions) -> RunOptions:
        return options

    def stop(self, pod: Pod, name: str) -> None:
        pass

    def remove(self, pod: Pod) -> None:
        pass

    def reboot(self) -> None:
        pass
