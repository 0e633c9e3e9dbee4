"""Publish a driver's devices as ResourceSlices, and repair them after changes by other clients.

One thread compares the wanted slices with those of the API server, and sends the changes. It does
this after each change of a slice, of the driver's devices or of their health, and at least every 10
minutes. It lists the slices each time, so a missed event only causes a delay.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Container
from typing import Any

from devicemanager.client.errors import ApiError, ClientClosing, ClusterError, Conflict
from devicemanager.driver.api import ResourceApi
from devicemanager.driver.author import NewestResources, Resources
from devicemanager.driver.errors import DroppedFields
from devicemanager.driver.slices import (
    Slice,
    Spec,
    comparable,
    lost_fields,
    plan,
    pools_of,
    specs,
    tainted,
    without_taint,
)
from devicemanager.plugin.common.notifier import Notifier

__all__ = ["SlicePublisher"]

_RESYNC = 600.0
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_INTERVAL = 0.2
"""Minimum time between two comparisons, in seconds.

It limits the number of requests if another client changes slices all the time.
"""

Report = Callable[[Exception, str], object]


class SlicePublisher:
    """Publisher of one driver's slices on one node. It keeps the slices on the API server equal to
    the devices that the driver provides."""

    def __init__(
        self,
        api: ResourceApi,
        driver: str,
        node: str,
        resources: NewestResources,
        stopping: threading.Event,
        report: Report,
        unhealthy: Callable[[], Container[tuple[str, str]]] = tuple,
    ) -> None:
        """Create the publisher; ``start`` starts its threads.

        ``report`` is called with each error and a description of the failed task. The function
        ``unhealthy`` returns the devices that get the taint for unhealthy devices, as pairs of pool
        name and device name.
        """
        self._api = api
        self._driver = driver
        self._node = node
        self._resources = resources
        self._stopping = stopping
        self._report = report
        self._unhealthy = unhealthy
        self._changed = Notifier()
        self._finished = Notifier()
        self._published: Resources | None = None
        """The devices that were published last; None before the first success."""
        self._failures = 0
        self._owner: dict[str, Any] | None = None
        self._stored: dict[str, Spec] = {}
        """Specs that the API server stored without some fields. The keys are the specs that were
        sent, as JSON text."""

    def start(self) -> None:
        """Start the threads.

        To end them, set the constructor's event ``stopping``, close the API client, and call
        ``notify``.
        """
        self._resources.call_on_change(self.notify)
        for target in (self._run, self._watch):
            threading.Thread(target=target, name=f"slices of {self._driver}", daemon=True).start()

    def notify(self) -> None:
        """Make the publisher's thread compare the wanted slices with those of the API server now.

        Does not wait for the result.
        """
        self._changed.notify()

    def wait_published(self, timeout: float) -> bool:
        """Wait until all slices are published. Return False after ``timeout`` seconds."""

        def is_done() -> bool:
            return self._published is not None and self._published is self._resources.newest

        return self._finished.wait_for(is_done, timeout)

    # -- threads ---------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self._api.watch(self, lambda text: None)
            except ClientClosing:
                return
            # Only the choice of the API version can fail. The other thread reports this error.
            except ClusterError:
                self._stopping.wait(_FIRST_WAIT)

    def begin_list(self) -> None:
        """Do nothing at the start of a LIST. Implements ``client.reflector.Sink``."""

    def replace(self, objects: list[Slice]) -> None:
        """Call ``notify`` after a LIST. Implements ``client.reflector.Sink``."""
        self.notify()

    def apply(self, kind: str, object_: Slice) -> None:
        """Call ``notify`` after a change of a slice. Implements ``client.reflector.Sink``."""
        self.notify()

    def _run(self) -> None:
        while not self._stopping.is_set():
            # Read the count first: a change during the attempt then ends the wait immediately.
            seen = self._changed.count
            began = time.monotonic()
            pause = self._attempt()
            self._changed.wait(seen, pause)
            self._stopping.wait(max(0.0, began + _INTERVAL - time.monotonic()))

    def _attempt(self) -> float:
        """Compare once and send the changes. Return the seconds until the next comparison."""
        resources = self._resources.newest
        # The driver has not listed its devices yet. Slices of an earlier run stay until then.
        if resources is None:
            return _RESYNC
        try:
            unhealthy = self._unhealthy()
            wanted = {
                name: specs(
                    self._driver, self._node, name, tainted(self._driver, name, pool, unhealthy)
                )
                for name, pool in pools_of(resources, self._node).items()
            }
            self._send(wanted)
        except ClientClosing:
            # The driver stops, and the loop of the thread ends without a wait.
            return 0.0
        except Conflict:
            # Another client changed a slice first. Compare again.
            return _INTERVAL
        except (ApiError, ClusterError, ValueError) as error:
            self._report(error, "publishing ResourceSlices")
            self._failures += 1
            # The exponent has a limit, because 2.0 ** 1024 raises OverflowError.
            return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._failures - 1, 10))
        self._failures = 0
        # These are the resources from before the requests. Newer ones may have arrived meanwhile.
        self._published = resources
        self._finished.notify()
        return _RESYNC

    # -- requests --------------------------------------------------------------------

    def _send(self, wanted: dict[str, list[Spec]]) -> None:
        changes = plan(wanted, self._api.slices(), self._is_stored)
        for slice_ in changes.replaced:
            self._check(slice_["spec"], self._api.replace(slice_))
        for position, spec in changes.created:
            self._check(spec, self._api.create(self._new(position, spec)))
        for slice_ in changes.deleted:
            self._api.delete(slice_)

    def _new(self, position: int, spec: Spec) -> Slice:
        # Request the Node only for a new slice: the Node may be created after the driver starts.
        if self._owner is None:
            self._owner = self._api.owner()
        # As in the Go library: the order of devices in a pool is their priority.
        prefix = f"{position:05x}-{self._driver}-{self._node}-"
        return {
            "metadata": {"generateName": prefix, "ownerReferences": [self._owner]},
            "spec": spec,
        }

    def _is_stored(self, wanted: Spec, existing: Spec) -> bool:
        wanted, existing = comparable(wanted), comparable(existing)
        # Without the second comparison, a field that the server drops would cause a write each
        # time.
        return wanted == existing or self._stored.get(_key(wanted)) == existing

    def _check(self, sent: Spec, stored: Slice) -> None:
        """Report fields that the server did not store, and record what it stored."""
        wanted, found = comparable(sent), comparable(stored["spec"])
        if wanted == found:
            return
        is_new = self._stored.get(_key(wanted)) != found
        self._stored[_key(wanted)] = found
        # Clusters before 1.36 store no taints by default. The author did not ask for this one.
        asked = without_taint(self._driver, wanted)
        if is_new and (lost := lost_fields(asked, found)):
            error = DroppedFields(
                f"the API server did not store {', '.join(lost[:5])}: check its feature gates"
            )
            self._report(error, "publishing ResourceSlices")


def _key(spec: Spec) -> str:
    return json.dumps(spec, sort_keys=True)
