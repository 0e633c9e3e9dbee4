"""Resource names and socket names: pure rules over text."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator

from devicemanager.plugin.errors import ConfigurationError
from devicemanager.plugin.settings import DEFAULT_DIRECTORY

__all__ = ["SOCKET_PATH_LIMIT", "check_resource_name", "socket_names"]

SOCKET_PATH_LIMIT = 107
"""Bytes of a unix socket's path that the kernel takes, without the closing NUL."""

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ENDING = 6
_HASH = 8


def check_resource_name(resource: str) -> None:
    """Raise ConfigurationError unless a kubelet would take this as an extended resource.

    The rule is IsExtendedResourceName of pkg/apis/core/v1/helper (v1.32), where the name
    with ``requests.`` in front must be a qualified name as well.
    """
    domain, slash, name = resource.partition("/")
    reason = None
    if not slash:
        reason = "it has no domain, as in vendor.com/gpu"
    elif domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        reason = "the domain kubernetes.io is Kubernetes' own"
    elif resource.startswith("requests."):
        reason = "it starts with requests."
    elif len("requests." + domain) > 253 or not _DOMAIN.fullmatch(domain):
        reason = f"{domain!r} is not a DNS domain of at most 244 characters"
    elif not _NAME.fullmatch(name):
        reason = f"{name!r} is not a name of at most 63 letters, digits, '-', '_' and '.'"
    if reason:
        raise ConfigurationError(f"resource name {resource!r} is not valid: {reason}")


def socket_names(plain: str, directory: str, *, unique: bool) -> Iterator[str]:
    """File names to try for a socket in ``directory``, best first, without end.

    The plain name comes first unless ``unique``; the others have a random ending. All fit
    into 107 bytes here and under the kubelet's default directory, since a plugin may see
    its directory under another path than the kubelet does.
    """
    longest = max(len(directory.encode()), len(DEFAULT_DIRECTORY))
    room = SOCKET_PATH_LIMIT - longest - 1 - (_ENDING + 1)
    if room < _HASH + 2:
        raise ConfigurationError(
            f"directory {directory} is too long for unix sockets: a path has at most "
            f"{SOCKET_PATH_LIMIT} bytes; choose a shorter one"
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
