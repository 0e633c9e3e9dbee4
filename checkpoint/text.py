"""The two texts of a checkpoint: the JSON in the file and the one that is hashed.

Why two: the kubelet does not hash the file. It hashes what Go's debug printing makes of the
value it has read, so that a file written with other spaces or in another order of fields is
still valid. A reader in another language has to print the same text, byte for byte.

The JSON is what Go's encoding/json writes for the kubelet's types: no spaces, map keys as
sorted strings (so "10" before "7"), and ``<``, ``>``, ``&``, U+2028 and U+2029 escaped.
The hashed text is what ``dump.ForHash`` makes of the same value (k8s.io/apimachinery
pkg/util/dump, go-spew with ``%#v``): types before the fields of a struct, nothing escaped,
integer keys sorted as numbers.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import Final

import attrs

from checkpoint.fnv import fnv1a_32
from checkpoint.model import Checkpoint, DevicesPerNUMA, PodDevicesEntry

__all__ = [
    "HASHED_HEAD",
    "JSON_HEAD",
    "Rendered",
    "checksum",
    "dumps",
    "hashed_text",
    "join",
    "json_end",
    "render_entry",
    "render_registered",
    "render_resource",
]

JSON_HEAD: Final = b'{"Data":{"PodDeviceEntries":'
HASHED_HEAD: Final = b"(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
_JSON_REGISTERED: Final = b',"RegisteredDevices":'
_HASHED_REGISTERED: Final = b" RegisteredDevices:(map[string][]string)"

_SPECIAL: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')
_HTML: Final = "[<>&\u2028\u2029]"
_DECIMAL: Final = tuple(map(str, range(256)))


@attrs.frozen(eq=False, repr=False)
class Rendered:
    """One piece of a checkpoint in both texts. Compared by identity: the same object is the
    same text, and telling so costs nothing."""

    json: bytes
    hashed: bytes


def join(parts: Sequence[Rendered]) -> Rendered:
    """The pieces one after another, as elements of a list or of a map."""
    if len(parts) == 1:
        return parts[0]
    return Rendered(
        b",".join([part.json for part in parts]), b" ".join([part.hashed for part in parts])
    )


def render_entry(entry: PodDevicesEntry) -> Rendered:
    """An element of PodDeviceEntries. Raises UnicodeEncodeError for a lone surrogate, which
    no protobuf or JSON text can have brought in."""
    json_ids, hashed_ids = _devices_per_numa(entry.device_ids)
    json_resp, hashed_resp = _bytes(entry.alloc_resp)
    json = (
        f'{{"PodUID":{_quote(entry.pod_uid)},"ContainerName":{_quote(entry.container_name)},'
        f'"ResourceName":{_quote(entry.resource_name)},"DeviceIDs":{json_ids},'
        f'"AllocResp":{json_resp}}}'
    )
    hashed = (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){hashed_ids} AllocResp:([]uint8){hashed_resp}}}"
    )
    return Rendered(json.encode(), hashed.encode())


def render_resource(name: str, ids: Sequence[str] | None) -> Rendered:
    """An element of RegisteredDevices."""
    json, hashed = _strings(ids)
    return Rendered(f"{_quote(name)}:{json}".encode(), f"{name}:{hashed}".encode())


def render_registered(resources: Sequence[Rendered] | None) -> Rendered:
    """All that follows the entries, up to the checksum; ``resources`` are sorted by name."""
    if resources is None:
        json, hashed = b"null", b"<nil>"
    else:
        inner = join(resources)
        json, hashed = b"{%b}" % inner.json, b"map[%b]" % inner.hashed
    return Rendered(_JSON_REGISTERED + json, b"%b%b}" % (_HASHED_REGISTERED, hashed))


def json_end(checksum: int) -> bytes:
    """The last bytes of the file."""
    return b'},"Checksum":%d}' % checksum


def dumps(checkpoint: Checkpoint) -> bytes:
    """The file's contents, byte for byte as a kubelet writes them for the same data."""
    rendered = _render(checkpoint)
    return rendered.json + json_end(fnv1a_32(rendered.hashed))


def hashed_text(checkpoint: Checkpoint) -> bytes:
    """The text over which the checksum runs."""
    return _render(checkpoint).hashed


def checksum(checkpoint: Checkpoint) -> int:
    """FNV-1a 32 over :func:`hashed_text`."""
    return fnv1a_32(hashed_text(checkpoint))


def _render(checkpoint: Checkpoint) -> Rendered:
    if checkpoint.entries is None:
        json, hashed = b"null", b"<nil>"
    else:
        inner = join([render_entry(entry) for entry in checkpoint.entries])
        json, hashed = b"[%b]" % inner.json, b"[%b]" % inner.hashed
    registered = checkpoint.registered_devices
    tail = render_registered(
        None
        if registered is None
        else [render_resource(name, registered[name]) for name in sorted(registered)]
    )
    return Rendered(JSON_HEAD + json + tail.json, HASHED_HEAD + hashed + tail.hashed)


def _devices_per_numa(devices: DevicesPerNUMA | None) -> tuple[str, str]:
    if devices is None:
        return "null", "<nil>"
    texts = {node: _strings(devices[node]) for node in sorted(devices)}
    hashed = " ".join([f"{node}:{text[1]}" for node, text in texts.items()])
    nodes: Iterable[int] = texts if len(texts) < 2 else sorted(texts, key=str)
    json = ",".join([f'"{node}":{texts[node][0]}' for node in nodes])
    return f"{{{json}}}", f"map[{hashed}]"


def _strings(strings: Sequence[str] | None) -> tuple[str, str]:
    if strings is None:
        return "null", "<nil>"
    hashed = " ".join(strings)
    if not strings:
        json = ""
    elif _SPECIAL.search(hashed) is None:
        json = '"' + '","'.join(strings) + '"'
    else:
        json = ",".join(map(_quote, strings))
    return f"[{json}]", f"[{hashed}]"


def _bytes(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "null", "<nil>"
    json = b2a_base64(data, newline=False).decode("ascii")
    return f'"{json}"', f"[{' '.join([_DECIMAL[byte] for byte in data])}]"


def _quote(text: str) -> str:
    if _SPECIAL.search(text) is None:
        return f'"{text}"'
    # Go escapes as JSON does by default (\b and \f since Go 1.22), and what HTML or
    # JavaScript could trip over; DEL and the rest stand raw.
    return re.sub(_HTML, _escape, encode_basestring(text))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
