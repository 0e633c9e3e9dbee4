"""Leaving values of environment variables out of a recording."""

from __future__ import annotations

import re
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from devicemanager.plugin.recording.errors import RecordingError
from protos import deviceplugin_v1beta1 as dp

__all__ = ["REDACTED", "Redaction"]

REDACTED = "REDACTED"


class Redaction:
    """Replaces the values of environment variables in answers to Allocate.

    ``patterns`` are regular expressions; a variable is redacted if one of them is found in
    its name. Raises RecordingError for what is no regular expression.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        try:
            self._patterns = [re.compile(each) for each in self.patterns]
        except re.error as error:
            raise RecordingError(f"{error.pattern!r} is no regular expression: {error}") from error

    def apply(self, rpc: str, response: bytes) -> tuple[bytes, tuple[str, ...]]:
        """The response as it may be written, and the names of the variables that were redacted.

        Without one the bytes are those of the plugin.
        """
        if rpc != "Allocate" or not self._patterns:
            return response, ()
        try:
            message = dp.AllocateResponse.FromString(response)
        except DecodeError:
            # What is in there cannot be told: nothing of it may be written.
            return b"", (REDACTED,)
        names: set[str] = set()
        for container in message.container_responses:
            for name in container.envs:
                if any(pattern.search(name) for pattern in self._patterns):
                    container.envs[name] = REDACTED
                    names.add(name)
        if not names:
            return response, ()
        return message.SerializeToString(deterministic=True), tuple(sorted(names))
