"""A driver that repeats recorded responses."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
import grpc

from devicemanager.driver.paths import in_kubelet_directory
from devicemanager.driver.services import SERVICES, Report, Version, add_services
from devicemanager.driver.sockets import DriverSockets
from devicemanager.plugin.recording.calls import OK, RecordedCall
from devicemanager.plugin.recording.errors import NotRecorded, RecordingError
from devicemanager.plugin.recording.recording import Recording
from devicemanager.plugin.recording.replay_service import status_code
from protos import dra_v1, drahealth_v1
from protos import pluginregistration_v1 as pr

__all__ = ["ReplayDriver", "recorded_drivers"]

_PREPARE, _UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
_Key = tuple[str, str, str]
"""Method, claim namespace and claim name."""


@attrs.frozen
class _Outcome:
    """Result of a recorded call for one claim: an entry, no entry, or a failed call."""

    call: RecordedCall
    entry: Any = None


class ReplayDriver:
    """Driver that repeats the responses of a recorded driver. A context manager. Thread-safe.

    A claim gets its recorded results in order. After the last result, it gets the last result again
    each time. The order of claims and their grouping into calls do not matter. Recorded health
    reports are sent without pauses; after the last report, the stream stays open. ``driver`` is the
    driver's name; it is optional if the recording has only one driver.

    The constructor raises RecordingError for an invalid recording, and SocketPathError if the path
    of a socket is too long.
    """

    def __init__(
        self,
        recording: Recording | str | os.PathLike[str],
        root: str | os.PathLike[str],
        driver: str | None = None,
        *,
        on_miss: Callable[[str], object] = lambda text: None,
    ) -> None:
        """Create the driver; ``start`` starts it.

        ``root`` is the kubelet's directory, such as ``/var/lib/kubelet``. ``on_miss`` is called
        with a line of text for each requested claim that was not recorded.
        """
        if not isinstance(recording, Recording):
            recording = Recording.load(recording)
        self.name = driver or _only_driver(recording)
        calls = [call for call in recording.calls if call.resource == self.name]
        info = _info(recording, calls, self.name)
        self._outcomes = _outcomes(calls)
        self._reports = [
            drahealth_v1.NodeWatchResourcesResponse.FromString(call.response_bytes or b"")
            for call in calls
            if call.rpc == "NodeWatchResources" and call.stream_message is not None
        ]
        # The recorded driver may have services that this program does not know.
        services = [name for name in info.supported_versions if name in SERVICES]
        self.sockets = DriverSockets(
            self.name,
            in_kubelet_directory(self.name, Path(root)),
            services,
            lambda server: add_services(self, services, server),
        )
        self._on_miss = on_miss
        self._changed = threading.Condition()
        """Condition variable that guards ``_misses`` and ``_is_running``."""
        self._misses: list[str] = []
        self._is_running = False

    def start(self) -> Self:
        """Start serving. Raises OSError if a socket cannot be created."""
        self._is_running = True
        self.sockets.start()
        return self

    def stop(self) -> None:
        """Stop serving and remove the sockets. Idempotent."""
        with self._changed:
            self._is_running = False
            self._changed.notify_all()
        self.sockets.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_registered(self, timeout: float = 10.0) -> bool:
        """Wait until the kubelet has registered the driver. Return False after ``timeout``
        seconds."""
        return self.sockets.wait_registered(timeout)

    @property
    def misses(self) -> tuple[str, ...]:
        """Lines of text, one for each requested claim that was not recorded."""
        with self._changed:
            return tuple(self._misses)

    def check(self) -> None:
        """Raise NotRecorded if a requested claim was not recorded."""
        if misses := self.misses:
            raise NotRecorded("\n".join(misses))

    # -- services --------------------------------------------------------------------

    def prepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        """Internal: handle NodePrepareResources."""
        response = dra_v1.NodePrepareResourcesResponse()
        self._fill(_PREPARE, claims, response, context)
        return response

    def unprepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        """Internal: handle NodeUnprepareResources."""
        response = dra_v1.NodeUnprepareResourcesResponse()
        self._fill(_UNPREPARE, claims, response, context)
        return response

    def watch_health(self, context: grpc.ServicerContext) -> Iterator[Report]:
        """Internal: yield the recorded reports, then wait for the end of the call."""
        yield from self._reports
        # The stream stays open: at its end, a kubelet forgets the health of the driver's devices
        # and opens a new stream.
        context.add_callback(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running or not context.is_active())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _fill(
        self,
        rpc: str,
        claims: Sequence[dra_v1.Claim],
        response: Any,
        context: grpc.ServicerContext,
    ) -> None:
        """Fill a response with the recorded entry of each claim, under the claim's current UID."""
        for claim in claims:
            outcome = self._take((rpc, claim.namespace, claim.name))
            if outcome is None:
                response.claims[claim.uid].error = self._miss(rpc, claim)
            elif outcome.call.code != OK:
                # The recorded call failed as a whole, so it has no entries for single claims.
                context.abort(status_code(outcome.call.code), outcome.call.message)
            elif outcome.entry is not None:
                response.claims[claim.uid].CopyFrom(outcome.entry)

    def _take(self, key: _Key) -> _Outcome | None:
        with self._changed:
            queue = self._outcomes.get(key)
            if not queue:
                return None
            # The last result stays: a kubelet can repeat a call more often than in the recording.
            return queue.pop(0) if len(queue) > 1 else queue[0]

    def _miss(self, rpc: str, claim: dra_v1.Claim) -> str:
        recorded = sorted({f"{key[1]}/{key[2]}" for key in self._outcomes if key[0] == rpc})
        text = (
            f"{rpc} of claim {claim.namespace}/{claim.name} was not recorded; recorded: "
            f"{', '.join(recorded) or 'none'}"
        )
        with self._changed:
            self._misses.append(text)
        self._on_miss(text)
        return f"replay: {text}"


def recorded_drivers(recording: Recording) -> tuple[str, ...]:
    """Return the names of the recorded drivers, sorted."""
    return tuple(sorted({call.resource for call in recording.calls if call.rpc == "GetInfo"}))


def _only_driver(recording: Recording) -> str:
    names = recorded_drivers(recording)
    if len(names) != 1:
        found = f"several drivers: name one of {', '.join(names)}" if names else "no driver"
        raise RecordingError(f"{recording.path}: the recording has {found}")
    return names[0]


def _info(recording: Recording, calls: Sequence[RecordedCall], driver: str) -> pr.PluginInfo:
    # The last response counts: a driver that was restarted can list other services.
    for call in reversed(calls):
        if call.rpc == "GetInfo" and call.response_bytes is not None:
            return pr.PluginInfo.FromString(call.response_bytes)
    found = ", ".join(recorded_drivers(recording)) or "none"
    raise RecordingError(
        f"{recording.path}: the driver {driver} was not recorded; recorded drivers: {found}"
    )


def _outcomes(calls: Sequence[RecordedCall]) -> dict[_Key, list[_Outcome]]:
    """Return the outcomes by claim, in the order in which the calls ended."""
    found: dict[_Key, list[_Outcome]] = defaultdict(list)
    kinds: dict[str, Any] = {
        _PREPARE: (dra_v1.NodePrepareResourcesRequest, dra_v1.NodePrepareResourcesResponse),
        _UNPREPARE: (dra_v1.NodeUnprepareResourcesRequest, dra_v1.NodeUnprepareResourcesResponse),
    }
    for call in calls:
        if call.rpc in kinds:
            request, response = kinds[call.rpc]
            # A failed call has no response. Its claims get an outcome without an entry.
            entries = response.FromString(call.response_bytes or b"").claims
            for claim in request.FromString(call.request_bytes).claims:
                entry = entries.get(claim.uid)
                found[call.rpc, claim.namespace, claim.name].append(_Outcome(call, entry))
    return found
