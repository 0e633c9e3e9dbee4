"""Calls in flight that prepare the claims of pods, which the end of a pod cancels.

The kubelet cancels the context of a pod's sync when the pod is to be terminated (``UpdatePod``,
pkg/kubelet/pod_workers.go, v1.32).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import attrs

from devicemanager.core.dra.effects import Answer
from devicemanager.core.errors import RpcError
from devicemanager.kubelet.dra.connection import Begun

__all__ = ["PrepareCalls"]


@attrs.define(eq=False, repr=False)
class _Prepare:
    cancel: Callable[[], object] | None = None
    is_canceled: bool = False


class PrepareCalls:
    """The pods whose claims are being prepared, and their calls. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, _Prepare] = {}

    @contextlib.contextmanager
    def of(self, uid: str) -> Iterator[None]:
        """Let ``cancel`` end the calls for a pod until the ``with`` block ends."""
        with self._lock:
            self._pods[uid] = _Prepare()
        try:
            yield
        finally:
            with self._lock:
                self._pods.pop(uid, None)

    def call(self, uid: str, call: Callable[[Begun], Answer]) -> Answer:
        """Make a call for a pod. Raises RpcError, with Canceled if the pod ends."""
        with self._lock:
            prepare = self._pods[uid]

        def begun(cancel: Callable[[], object]) -> None:
            with self._lock:
                prepare.cancel, is_canceled = cancel, prepare.is_canceled
            if is_canceled:
                cancel()

        try:
            return call(begun)
        except RpcError as error:
            if prepare.is_canceled:
                raise RpcError("Canceled", "context canceled") from error
            raise

    def cancel(self, uid: str) -> None:
        """Cancel the calls for a pod, now and until its prepare ends."""
        with self._lock:
            prepare = self._pods.get(uid)
            if prepare is None:
                return
            prepare.is_canceled, cancel = True, prepare.cancel
        if cancel is not None:
            cancel()
