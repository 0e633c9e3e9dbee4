"""Requests to a plugin that no pod causes: their shapes, their handlers, and the client's part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from devicemanager.control.shapes import Seconds, schema
from devicemanager.core.endpoints import PluginOptions
from devicemanager.core.runoptions import ContainerSettings
from devicemanager.kubelet.arguments import device_ids

if TYPE_CHECKING:
    from devicemanager.control.operation import Request
    from devicemanager.kubelet.mock import MockKubelet

__all__ = [
    "Allocate",
    "Allocated",
    "GetOptions",
    "GetPreferred",
    "PreStart",
    "Preferred",
    "RemoteDirectCalls",
    "allocate",
    "options",
    "pre_start",
    "preferred",
]

_Size = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, description="how many devices are wanted")]


# -- what is asked ---------------------------------------------------------------------


class Allocate(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Allocate for one container, or for several: give either ids or containers."""

    resource: str
    ids: Annotated[list[str] | None, Meta(description="of one container")] = None
    containers: Annotated[list[list[str]] | None, Meta(description="ids of each container")] = None
    timeout: Seconds = 10.0


class GetPreferred(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """GetPreferredAllocation for one container."""

    resource: str
    available: Annotated[list[str], Meta(description="ids to choose from")]
    must_include: Annotated[list[str], Meta(description="ids that have to be among them")] = []
    size: _Size
    timeout: Seconds = 10.0


class PreStart(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """PreStartContainer with these devices."""

    resource: str
    ids: list[str]
    timeout: Seconds = 10.0


class GetOptions(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """GetDevicePluginOptions."""

    resource: str
    timeout: Seconds = 10.0


# -- what is answered ------------------------------------------------------------------


class Allocated(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("allocated")):
    """The settings of each container response, as many as the plugin sent."""

    containers: list[ContainerSettings]


class Preferred(Struct, kw_only=True, frozen=True, tag_field="schema", tag=schema("preferred")):
    """The ids of each container response, as many as the plugin sent and in its order."""

    containers: list[list[str]]


# -- handlers --------------------------------------------------------------------------


def allocate(kubelet: MockKubelet, request: Request) -> Allocated:
    asked: Allocate = request.body
    settings = kubelet.allocate(
        asked.resource, asked.ids, containers=asked.containers, timeout=asked.timeout
    )
    return Allocated(containers=list(settings))


def preferred(kubelet: MockKubelet, request: Request) -> Preferred:
    asked: GetPreferred = request.body
    ids = kubelet.preferred(
        asked.resource,
        asked.available,
        asked.must_include,
        size=asked.size,
        timeout=asked.timeout,
    )
    return Preferred(containers=list(map(list, ids)))


def pre_start(kubelet: MockKubelet, request: Request) -> None:
    asked: PreStart = request.body
    kubelet.pre_start(asked.resource, asked.ids, timeout=asked.timeout)


def options(kubelet: MockKubelet, request: Request) -> PluginOptions:
    asked: GetOptions = request.body
    return kubelet.options(asked.resource, timeout=asked.timeout)


# -- the client ------------------------------------------------------------------------


class RemoteDirectCalls:
    """Direct requests to the plugin that serves a resource; see ``DirectCalls``."""

    if TYPE_CHECKING:

        def ask(self, name: str, *, body: object = None, timeout: float = 0.0) -> Any: ...

    def allocate(
        self,
        resource: str,
        ids: Iterable[str] | None = None,
        *,
        containers: Sequence[Iterable[str]] | None = None,
        timeout: float = 10.0,
    ) -> tuple[ContainerSettings, ...]:
        body = Allocate(
            resource=resource,
            ids=None if ids is None else _texts(ids),
            containers=None if containers is None else list(map(_texts, containers)),
            timeout=timeout,
        )
        found: Allocated = self.ask("callAllocate", body=body, timeout=timeout)
        return tuple(found.containers)

    def preferred(
        self,
        resource: str,
        available: Iterable[str],
        must_include: Iterable[str] = (),
        *,
        size: int,
        timeout: float = 10.0,
    ) -> tuple[tuple[str, ...], ...]:
        body = GetPreferred(
            resource=resource,
            available=_texts(available),
            must_include=_texts(must_include),
            size=size,
            timeout=timeout,
        )
        found: Preferred = self.ask("callGetPreferredAllocation", body=body, timeout=timeout)
        return tuple(map(tuple, found.containers))

    def pre_start(self, resource: str, ids: Iterable[str], *, timeout: float = 10.0) -> None:
        body = PreStart(resource=resource, ids=_texts(ids), timeout=timeout)
        self.ask("callPreStartContainer", body=body, timeout=timeout)

    def options(self, resource: str, *, timeout: float = 10.0) -> PluginOptions:
        body = GetOptions(resource=resource, timeout=timeout)
        found: PluginOptions = self.ask("callGetDevicePluginOptions", body=body, timeout=timeout)
        return found


def _texts(ids: Iterable[str]) -> list[str]:
    return list(map(str, device_ids(ids)))
