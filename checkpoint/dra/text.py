"""Render the file: the inner JSON text with the claims, and the outer JSON object."""

# The inner text is JSON, and the outer object contains it as a string. So each character of the
# inner text is escaped. The escape of a character does not depend on its neighbours, so escaped
# pieces can be joined. ``StateDocument`` therefore renders each claim once.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

import attrs

from checkpoint.dra.model import ClaimLike, DeviceLike, DriverLike, State
from checkpoint.text import quote

_HEAD: Final = (
    '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":'
)

NULL_TEXT: Final = f"{_HEAD}null}}"
"""Inner text of a kubelet that has never prepared a claim."""
NULL_CHECKSUM: Final = crc32(NULL_TEXT.encode())


@attrs.frozen(eq=False, repr=False)
class _Rendered:
    inner: bytes
    outer: bytes

    @classmethod
    def of(cls, text: str) -> _Rendered:
        return cls(text.encode(), quote(text)[1:-1].encode())


_OPEN, _CLOSE, _COMMA, _NULL = map(_Rendered.of, (f"{_HEAD}[", "]}", ",", NULL_TEXT))


def dumps(state: State, *, share_ids: bool = True) -> bytes:
    """Return the contents of the file, byte for byte as a kubelet writes them.

    ``share_ids`` is False for kubelets before v1.35. Raises UnicodeEncodeError if a text contains a
    lone surrogate.
    """
    return StateDocument(share_ids=share_ids).render(state.claims)


def checksum(state: State, *, share_ids: bool = True) -> int:
    """Return the checksum: the CRC-32 of the inner text."""
    document = StateDocument(share_ids=share_ids)
    return crc32(document.inner(state.claims))


class StateDocument:
    """Renders successive states, but each claim only once. Not thread-safe.

    Claims are compared by identity, so a rendered claim must not change.
    """

    def __init__(self, *, share_ids: bool = True) -> None:
        """``share_ids`` is False for kubelets before v1.35."""
        self._share_ids = share_ids
        self._rendered: dict[int, tuple[ClaimLike, _Rendered]] = {}

    def render(self, claims: Sequence[ClaimLike] | None) -> bytes:
        """Return the file with the claims in the given order; None is Go's nil."""
        parts = self._parts(claims)
        checksum = 0
        for part in parts:
            checksum = crc32(part.inner, checksum)
        outer = b"".join([part.outer for part in parts])
        return b'{"Data":"%b","Checksum":%d}' % (outer, checksum)

    def inner(self, claims: Sequence[ClaimLike] | None) -> bytes:
        """Return the inner text, from which the checksum is computed."""
        return b"".join([part.inner for part in self._parts(claims)])

    def _parts(self, claims: Sequence[ClaimLike] | None) -> list[_Rendered]:
        if claims is None:
            return [_NULL]
        known = self._rendered
        # Store the claim with its text: its ``id`` must not be reused while the text is cached.
        self._rendered = {
            id(claim): known.get(id(claim)) or (claim, _Rendered.of(self._claim(claim)))
            for claim in claims
        }
        parts = [_OPEN]
        for number, (_, rendered) in enumerate(self._rendered.values()):
            parts += [_COMMA, rendered] if number else [rendered]
        parts.append(_CLOSE)
        return parts

    def _claim(self, claim: ClaimLike) -> str:
        pods = ",".join([f"{quote(uid)}:{{}}" for uid in _sorted(claim.pods)])
        drivers = ",".join(
            [
                f"{quote(name)}:{self._driver(claim.drivers[name])}"
                for name in _sorted(claim.drivers)
            ]
        )
        return (
            f'{{"ClaimUID":{quote(claim.uid)},"ClaimName":{quote(claim.name)},'
            f'"Namespace":{quote(claim.namespace)},"PodUIDs":{{{pods}}},'
            f'"DriverState":{{{drivers}}}}}'
        )

    def _driver(self, driver: DriverLike) -> str:
        devices = "null"
        if driver.devices is not None:
            devices = f"[{','.join(map(self._device, driver.devices))}]"
        skips = f',"skipNodeOperations":{_strings(driver.skips)}' if driver.skips else ""
        return f'{{"Devices":{devices}{skips}}}'

    def _device(self, device: DeviceLike) -> str:
        share = ""
        if self._share_ids:
            known = device.share_id
            share = f'"ShareID":{"null" if known is None else quote(known)},'
        return (
            f'{{"PoolName":{quote(device.pool)},"DeviceName":{quote(device.device)},{share}'
            f'"RequestNames":{_strings(device.requests)},"CDIDeviceIDs":{_strings(device.cdi)}}}'
        )


def _sorted(keys: Iterable[str]) -> list[str]:
    # Go sorts keys by their bytes, which is the order of code points.
    return sorted(keys)


def _strings(strings: Sequence[str] | None) -> str:
    return "null" if strings is None else f"[{','.join(map(quote, strings))}]"
