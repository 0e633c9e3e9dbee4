"""One server and its registration, with one kubelet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from devicemanager.io.retry import retry
from devicemanager.plugin.errors import RegistrationFailed
from devicemanager.plugin.modes import RegistrationMode
from devicemanager.plugin.notifier import Notifier
from devicemanager.plugin.reconcile import Observation
from devicemanager.plugin.registration import Answer
from devicemanager.plugin.server import PluginServer
from devicemanager.plugin.settings import PluginSettings
from podresources.sockets import FileIdentity

__all__ = ["Session"]

_log = logging.getLogger(__name__)


class Session:
    """One server and its registration, until the kubelet, our socket or the last stream goes."""

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

    def look(self, short_lives: int) -> Observation:
        return Observation(
            now=time.monotonic(),
            kubelet=self._mode.kubelet(),
            served_kubelet=self.kubelet_identity,
            own_socket=self.server.is_reachable(),
            registered_at=self.registered_at,
            streams=self.server.service.streams.counts,
            short_lives=short_lives,
        )

    @property
    def was_short(self) -> bool:
        """Whether the list stream ended soon after it was opened."""
        streams = self.server.service.streams.counts
        lived = streams.last_ended - streams.last_opened
        return streams.opened > 0 and lived < self._settings.stream_settled

    def register(self, stopping: Callable[[], bool]) -> bool:
        """Register, with growing pauses between attempts. Return False once that is pointless:
        we stop, the kubelet is another one, or our socket is gone."""

        def pointless() -> bool:
            return (
                stopping()
                or self._mode.kubelet() != self.kubelet_identity
                or not self.server.is_reachable()
            )

        def nap(seconds: float) -> None:
            # Every stream event notifies too, so a notification alone must not end the pause.
            deadline = time.monotonic() + seconds
            while not pointless() and (left := deadline - time.monotonic()) > 0:
                self._notifier.wait(self._notifier.count, min(left, self._settings.recheck))

        settings = self._settings
        if retry(
            lambda: self._attempt(pointless),
            RegistrationFailed,
            sleep=nap,
            first_wait=settings.register_backoff,
            longest_wait=settings.register_backoff_limit,
            report=self._log_failure,
        ):
            self.registered_at = time.monotonic()
        return self.registered_at is not None

    def close(self) -> None:
        """Close the server and wait until its threads and descriptors are gone."""
        grace = self._settings.stop_grace
        self.server.close(grace).wait(grace + 1)

    def _attempt(self, pointless: Callable[[], bool]) -> bool:
        if pointless():
            return False

        def wait(answer: Answer) -> bool:
            # A kubelet that hangs in Register may be replaced: look after each notification.
            answer.add_done_callback(lambda _answer: self._notifier.notify())
            while not answer.done():
                seen = self._notifier.count
                if pointless():
                    return False
                if not answer.done():
                    self._notifier.wait(seen, self._settings.recheck)
            return True

        return self._mode.register(self.server, wait)

    def _log_failure(self, error: BaseException, pause: float) -> None:
        _log.warning(
            "%s: the kubelet did not register it: %s; again in %.0f s", self._resource, error, pause
        )
