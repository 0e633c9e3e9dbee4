"""Resource names and socket names: pure rules over text."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator

from devicemanager.api.deviceplugin import PLUGIN_DIRECTORY
from devicemanager.api.names import extended_resource_fault
from devicemanager.plugin.errors import ConfigurationError
from podresources.sockets import MAX_PATH_BYTES

__all__ = ["check_namespace", "check_resource_name", "socket_names"]

_ENDING = 6
_HASH = 8


def check_resource_name(resource: str) -> None:
    """Raise ConfigurationError unless a kubelet takes this as an extended resource."""
    if reason := extended_resource_fault(resource):
        raise ConfigurationError(f"resource name {resource!r} is not valid: {reason}")


def check_namespace(namespace: object) -> None:
    """Raise ConfigurationError unless resources can be named ``<namespace>/<last name>``."""
    if not isinstance(namespace, str):
        raise ConfigurationError(f"a namespace is a domain such as vendor.com, not {namespace!r}")
    if reason := extended_resource_fault(f"{namespace}/x"):
        raise ConfigurationError(f"namespace {namespace!r} is not valid: {reason}")


def socket_names(plain: str, directory: str, *, unique: bool) -> Iterator[str]:
    """File names to try for a socket in ``directory``, best first, without end.

    The plain name comes first unless ``unique``; the others have a random ending. All fit
    into 107 bytes here and under the kubelet's default directory, since a plugin may see
    its directory under another path than the kubelet does.
    """
    longest = max(len(directory.encode()), len(PLUGIN_DIRECTORY))
    room = MAX_PATH_BYTES - longest - 1 - (_ENDING + 1)
    if room < _HASH + 2:
        raise ConfigurationError(
            f"directory {directory} is too long for unix sockets: a path has at most "
            f"{MAX_PATH_BYTES} bytes; choose a shorter one"
        )
    base = _shorten(plain.replace("/", "_"), room)
    if not unique:
        yield base
    while True:
        yield f"{base}-{secrets.token_hex(_ENDING // 2)}"


def _shorten(name: str, room: int) -> str:
    """``name``, its end replaced by a hash of the whole if it is over ``room`` bytes."""
    raw = name.encode()
    if len(raw) <= room:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:_HASH]
    return raw[: room - _HASH - 1].decode(errors="ignore") + "-" + digest
