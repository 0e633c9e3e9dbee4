"""What blocks of ``MockKubelet``, for asyncio: it runs on another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from devicemanager.kubelet.pods.records import Phase

if TYPE_CHECKING:
    from devicemanager.core.runoptions import RunOptions
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.objects.manifests import Source

__all__ = ["AsyncMethods"]


class _Kubelet(Protocol):
    """What is called here; ``MockKubelet`` says what each does."""

    def __enter__(self) -> object: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def restart(self) -> None: ...
    def reboot(self) -> None: ...
    def admit(self, manifest: Source, *, start: bool = True) -> Admission: ...
    def terminate(self, *uids: str) -> None: ...
    def finish(self, uid: str, exit_codes: int | Mapping[str, int] = 0) -> Phase: ...
    def start_container(self, uid: str, container: str) -> RunOptions: ...


T = TypeVar("T", bound=_Kubelet)


class AsyncMethods:
    """Each method does what the one without ``_async`` does, and raises the same; ``async
    with`` starts the kubelet and closes it.

    A task that is cancelled waits no longer, but what it asked for goes on to its end.
    """

    async def __aenter__(self: T) -> T:
        await asyncio.to_thread(self.__enter__)
        return self

    async def __aexit__(
        self: _Kubelet,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    async def restart_async(self: _Kubelet) -> None:
        """``restart`` for asyncio."""
        await asyncio.to_thread(self.restart)

    async def reboot_async(self: _Kubelet) -> None:
        """``reboot`` for asyncio."""
        await asyncio.to_thread(self.reboot)

    async def admit_async(self: _Kubelet, manifest: Source, *, start: bool = True) -> Admission:
        """``admit`` for asyncio: the plugin may be served by the same loop."""
        return await asyncio.to_thread(self.admit, manifest, start=start)

    async def terminate_async(self: _Kubelet, *uids: str) -> None:
        """``terminate`` for asyncio."""
        await asyncio.to_thread(self.terminate, *uids)

    async def finish_async(
        self: _Kubelet, uid: str, exit_codes: int | Mapping[str, int] = 0
    ) -> Phase:
        """``finish`` for asyncio."""
        return await asyncio.to_thread(self.finish, uid, exit_codes)

    async def start_container_async(self: _Kubelet, uid: str, container: str) -> RunOptions:
        """``start_container`` for asyncio."""
        return await asyncio.to_thread(self.start_container, uid, container)
