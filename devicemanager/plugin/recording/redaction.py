"""Redact the values of environment variables before calls are written to a recording."""

from __future__ import annotations

import re
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from devicemanager.plugin.recording.errors import RecordingError
from protos import deviceplugin_v1beta1 as dp

__all__ = ["REDACTED", "Redaction"]

REDACTED = "REDACTED"


class Redaction:
    """Redaction of environment variables in Allocate responses.

    ``patterns`` are regular expressions: a variable is redacted if a pattern matches anywhere in
    its name. The constructor raises RecordingError for an invalid regular expression.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        try:
            self._patterns = [re.compile(each) for each in self.patterns]
        except re.error as error:
            raise RecordingError(
                f"invalid regular expression {error.pattern!r}: {error}"
            ) from error

    def apply(self, rpc: str, response: bytes) -> tuple[bytes, tuple[str, ...]]:
        """Return the redacted response, and the names of the redacted variables.

        If no variable is redacted, return the response unchanged. For a response that cannot be
        decoded, return ``b""`` and the name ``REDACTED``.
        """
        if rpc != "Allocate" or not self._patterns:
            return response, ()
        try:
            message = dp.AllocateResponse.FromString(response)
        except DecodeError:
            # The content cannot be decoded and may be secret, so write none of it.
            return b"", (REDACTED,)
        names: set[str] = set()
        for container in message.container_responses:
            for name in container.envs:
                if any(pattern.search(name) for pattern in self._patterns):
                    container.envs[name] = REDACTED
                    names.add(name)
        # Return the original bytes, which can have fields of a later API version.
        if not names:
            return response, ()
        return message.SerializeToString(deterministic=True), tuple(sorted(names))
