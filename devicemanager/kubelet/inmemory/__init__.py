"""Light nodes: a kubelet's decisions without sockets, files and threads, by the thousand."""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet

__all__ = ["InMemoryKubelet"]

__getattr__, __dir__ = lazy_names(__name__, {"InMemoryKubelet": "kubelet"})
