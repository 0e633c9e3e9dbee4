"""Session of a plugin: one server and its registration with one kubelet instance."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from devicemanager.io.retry import retry
from devicemanager.plugin.common.notifier import Notifier
from devicemanager.plugin.errors import RegistrationFailed
from devicemanager.plugin.reconcile import Observation
from devicemanager.plugin.registration import PendingResponse, RegistrationMode
from devicemanager.plugin.server import PluginServer
from devicemanager.plugin.settings import PluginSettings
from podresources.sockets import FileIdentity

__all__ = ["Session"]

_log = logging.getLogger(__name__)


class Session:
    """Server of a plugin, and its registration with one kubelet instance."""

    def __init__(
        self,
        resource: str,
        server: PluginServer,
        registration_mode: RegistrationMode,
        identity: FileIdentity,
        settings: PluginSettings,
        notifier: Notifier,
    ) -> None:
        self.server = server
        self.kubelet_identity = identity
        self.registered_at: float | None = None
        self._resource = resource
        self._mode = registration_mode
        self._settings = settings
        self._notifier = notifier

    def observe(self, short_streams: int) -> Observation:
        """Return the current state of the sockets and streams.

        ``short_streams``: number of consecutive registrations whose ListAndWatch stream ended
        early.
        """
        return Observation(
            now=time.monotonic(),
            kubelet=self._mode.kubelet(),
            served_kubelet=self.kubelet_identity,
            own_socket=self.server.is_reachable(),
            registered_at=self.registered_at,
            streams=self.server.service.streams.counts,
            short_streams=short_streams,
        )

    @property
    def was_short(self) -> bool:
        """True if the ListAndWatch stream ended soon after it was opened."""
        streams = self.server.service.streams.counts
        duration = streams.last_ended - streams.last_opened
        return streams.opened > 0 and duration < self._settings.stream_settled

    def register(self, stopping: Callable[[], bool]) -> bool:
        """Register, with exponential backoff between attempts.

        Return False as soon as the registration becomes obsolete: the plugin stops, the kubelet
        was restarted, or the plugin's socket was removed.
        """

        def obsolete() -> bool:
            return (
                stopping()
                or self._mode.kubelet() != self.kubelet_identity
                or not self.server.is_reachable()
            )

        def pause(seconds: float) -> None:
            # Stream events also notify, so a notification alone must not end the pause.
            deadline = time.monotonic() + seconds
            while not obsolete() and (left := deadline - time.monotonic()) > 0:
                self._notifier.wait(self._notifier.count, min(left, self._settings.recheck))

        # A rejection can be temporary, for example if the kubelet could not dial the plugin in
        # time. So attempts continue until the registration is obsolete.
        settings = self._settings
        if retry(
            lambda: self._attempt(obsolete),
            RegistrationFailed,
            sleep=pause,
            first_wait=settings.register_backoff,
            longest_wait=settings.register_backoff_limit,
            report=self._log_failure,
        ):
            self.registered_at = time.monotonic()
        return self.registered_at is not None

    def close(self) -> None:
        """Close the server and wait until its threads and descriptors are released."""
        # gRPC cancels calls after the grace period. Its threads get one more second to end.
        grace = self._settings.stop_grace
        self.server.close(grace).wait(grace + 1)

    def _attempt(self, obsolete: Callable[[], bool]) -> bool:
        if obsolete():
            return False

        def wait(response: PendingResponse) -> bool:
            # A kubelet that hangs in Register can be restarted: check after each notification.
            response.add_done_callback(lambda _response: self._notifier.notify())
            while not response.done():
                seen = self._notifier.count
                if obsolete():
                    return False
                # If the response arrived before `seen` was read, no notification ends the wait.
                if not response.done():
                    self._notifier.wait(seen, self._settings.recheck)
            return True

        return self._mode.register(self.server, wait)

    def _log_failure(self, error: BaseException, pause: float) -> None:
        _log.warning(
            "%s: registration failed: %s; retrying in %.0f s", self._resource, error, pause
        )
