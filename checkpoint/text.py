"""Render the two texts of a checkpoint: the JSON in the file, and the text that is hashed."""

# The kubelet does not hash the file. It hashes Go's debug output of the value that it has read.
# Therefore a file with different spaces or another order of fields is still valid. To compute the
# checksum in another language, a program must produce the same debug output, byte for byte.
#
# The JSON is the output of Go's encoding/json for the kubelet's types: no spaces, map keys as
# sorted strings ("10" before "7"), and ``<``, ``>``, ``&``, U+2028 and U+2029 escaped. The
# hashed text is the output of ``dump.ForHash`` (k8s.io/apimachinery pkg/util/dump, go-spew with
# ``%#v``): types before the fields of a struct, no escapes, integer keys sorted as numbers.

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import Final

import attrs

from checkpoint.fnv import fnv1a_32
from checkpoint.model import Checkpoint, DevicesPerNUMA, PodDevicesEntry

JSON_HEAD: Final = b'{"Data":{"PodDeviceEntries":'
HASHED_HEAD: Final = b"(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
_JSON_REGISTERED: Final = b',"RegisteredDevices":'
_HASHED_REGISTERED: Final = b" RegisteredDevices:(map[string][]string)"

_SPECIAL: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')
_HTML: Final = "[<>&\u2028\u2029]"
_DECIMAL: Final = tuple(map(str, range(256)))


@attrs.frozen(eq=False, repr=False)
class Rendered:
    """One piece of a checkpoint, rendered as JSON and as the text that is hashed."""

    # Compared by identity: a rendered entry never changes, so the same object means the same text.
    # Comparing thousands of entries this way is fast.

    json: bytes
    hashed: bytes


def join(parts: Sequence[Rendered]) -> Rendered:
    """Return the rendered elements of a list or map as one piece, with separators between them."""
    if len(parts) == 1:
        return parts[0]
    return Rendered(
        b",".join([part.json for part in parts]), b" ".join([part.hashed for part in parts])
    )


def render_entry(entry: PodDevicesEntry) -> Rendered:
    """Return the rendered element of PodDeviceEntries for ``entry``.

    Raises UnicodeEncodeError if a string in ``entry`` contains a lone surrogate. Strings from
    protobuf or from this package's JSON parser contain no lone surrogates.
    """
    json_ids, hashed_ids = _devices_per_numa(entry.device_ids)
    json_resp, hashed_resp = _bytes(entry.alloc_resp)
    json = (
        f'{{"PodUID":{quote(entry.pod_uid)},"ContainerName":{quote(entry.container_name)},'
        f'"ResourceName":{quote(entry.resource_name)},"DeviceIDs":{json_ids},'
        f'"AllocResp":{json_resp}}}'
    )
    hashed = (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){hashed_ids} AllocResp:([]uint8){hashed_resp}}}"
    )
    return Rendered(json.encode(), hashed.encode())


def render_resource(name: str, ids: Sequence[str] | None) -> Rendered:
    """Return the rendered element of RegisteredDevices for one resource and its device IDs."""
    json, hashed = _strings(ids)
    return Rendered(f"{quote(name)}:{json}".encode(), f"{name}:{hashed}".encode())


def render_registered(resources: Sequence[Rendered] | None) -> Rendered:
    """Return the rendered field RegisteredDevices. ``resources`` are the rendered elements of this
    field, sorted by name."""
    if resources is None:
        json, hashed = b"null", b"<nil>"
    else:
        inner = join(resources)
        json, hashed = b"{%b}" % inner.json, b"map[%b]" % inner.hashed
    return Rendered(_JSON_REGISTERED + json, b"%b%b}" % (_HASHED_REGISTERED, hashed))


def json_end(checksum: int) -> bytes:
    """Return the end of the file: the text after RegisteredDevices, with this checksum."""
    return b'},"Checksum":%d}' % checksum


def dumps(checkpoint: Checkpoint) -> bytes:
    """Return the contents of a checkpoint file, byte for byte as a kubelet writes them."""
    rendered = _render(checkpoint)
    return rendered.json + json_end(fnv1a_32(rendered.hashed))


def hashed_text(checkpoint: Checkpoint) -> bytes:
    """Return the text from which the checksum is computed: Go's debug output of the contents."""
    return _render(checkpoint).hashed


def checksum(checkpoint: Checkpoint) -> int:
    """Return the checksum: the 32-bit FNV-1a hash of :func:`hashed_text`."""
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
    # Search all IDs together: almost no ID contains a character to escape.
    if not strings:
        json = ""
    elif _SPECIAL.search(hashed) is None:
        json = '"' + '","'.join(strings) + '"'
    else:
        json = ",".join(map(quote, strings))
    return f"[{json}]", f"[{hashed}]"


def _bytes(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "null", "<nil>"
    json = b2a_base64(data, newline=False).decode("ascii")
    return f'"{json}"', f"[{' '.join([_DECIMAL[byte] for byte in data])}]"


def quote(text: str) -> str:
    """Return a text as a JSON string, written as by Go's encoder."""
    if _SPECIAL.search(text) is None:
        return f'"{text}"'
    # Go escapes the same characters as Python (\b and \f since Go 1.22), and also those with a
    # meaning in HTML or JavaScript. Neither escapes DEL and non-ASCII characters.
    return re.sub(_HTML, _escape, encode_basestring(text))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
