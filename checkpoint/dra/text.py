"""Render ``dra_manager_state``, the kubelet's file of prepared resource claims.

The file is a JSON object with two fields. ``Data`` is a string that contains the claims as JSON.
``Checksum`` is the CRC-32 of this string.
"""

# The inner text is JSON, and the outer object contains it as a string. So each character of the
# inner text is escaped. The escape of a character does not depend on its neighbours, so escaped
# pieces can be joined. ``StateDocument`` therefore renders each claim once. It computes the
# checksum of the whole text each time: that takes a tenth of a millisecond for a thousand claims.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Final
from zlib import crc32

import attrs

from checkpoint.dra.model import ClaimLike, DeviceLike, DriverLike, State
from checkpoint.text import quote

_HEAD: Final = (
    '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":'
)

NULL_TEXT: Final = f"{_HEAD}null}}"
"""Value of the field ``Data`` if the kubelet has never prepared a claim."""
NULL_CHECKSUM: Final = crc32(NULL_TEXT.encode())


@attrs.frozen(eq=False, repr=False)
class _Rendered:
    inner: bytes
    outer: bytes

    @classmethod
    def of(cls, text: str) -> _Rendered:
        return cls(text.encode(), quote(text)[1:-1].encode())


_OPEN, _NULL = map(_Rendered.of, (f"{_HEAD}[", NULL_TEXT))
_OPEN_CHECKSUM: Final = crc32(_OPEN.inner)
_CLOSE: Final = b"]}"


def dumps(state: State, *, share_ids: bool = True) -> bytes:
    """Return the contents of ``dra_manager_state``, byte for byte as a kubelet writes them.

    ``share_ids``: False omits the field ``ShareID``, as kubelets before v1.35 do. Raises
    UnicodeEncodeError if a string in ``state`` contains a lone surrogate.
    """
    return StateDocument(share_ids=share_ids).render(state.claims)


def checksum(state: State, *, share_ids: bool = True) -> int:
    """Return the checksum of the file: the CRC-32 of the text in its field ``Data``."""
    return StateDocument(share_ids=share_ids).checksum(state.claims)


class StateDocument:
    """Renderer of ``dra_manager_state``. It reuses the text of claims that have not changed since
    the previous call. Not thread-safe.

    Claims are compared by identity, so a rendered claim must not change.
    """

    def __init__(self, *, share_ids: bool = True) -> None:
        """``share_ids``: False omits the field ``ShareID``, as kubelets before v1.35 do."""
        self._share_ids = share_ids
        # The claims of the last call, and the two texts of each. Changes replace parts of the
        # lists, so the cost of a call hardly depends on the number of claims.
        self._claims: list[ClaimLike] = []
        self._inner: list[bytes] = []
        self._outer: list[bytes] = []

    def render(self, claims: Sequence[ClaimLike] | None) -> bytes:
        """Return the contents of the file with the claims in the given order. If ``claims`` is
        None, the file has ``null`` in place of the list."""
        return b"".join(self.parts(claims))

    def parts(self, claims: Sequence[ClaimLike] | None) -> list[bytes]:
        """Return the contents of the file in consecutive pieces, so that ``StateStore.write`` need
        not copy them."""
        checksum = self.checksum(claims)
        pieces = [_NULL.outer] if claims is None else [_OPEN.outer, b",".join(self._outer), _CLOSE]
        return [b'{"Data":"', *pieces, b'","Checksum":%d}' % checksum]

    def checksum(self, claims: Sequence[ClaimLike] | None) -> int:
        """Return the checksum of the file: the CRC-32 of the text in its field ``Data``."""
        if claims is None:
            return NULL_CHECKSUM
        self._follow(claims)
        return crc32(_CLOSE, crc32(b",".join(self._inner), _OPEN_CHECKSUM))

    def _follow(self, claims: Sequence[ClaimLike]) -> None:
        """Render the claims, except those at both ends that are the same as in the last call."""
        old = self._claims
        start = _equal(old, claims)
        end = _equal(reversed(old[start:]), reversed(claims[start:]))
        replaced = slice(start, len(old) - end)
        changed = claims[start : len(claims) - end]
        rendered = [_Rendered.of(self._claim(claim)) for claim in changed]
        self._claims[replaced] = changed
        self._inner[replaced] = [each.inner for each in rendered]
        self._outer[replaced] = [each.outer for each in rendered]

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


def _equal(old: Iterable[ClaimLike], new: Iterable[ClaimLike]) -> int:
    """Return the number of identical claims before the first different pair."""
    same = list(map(is_, old, new))
    return same.index(False) if False in same else len(same)


def _sorted(keys: Iterable[str]) -> list[str]:
    # Go sorts keys by their bytes, which is the order of code points.
    return sorted(keys)


def _strings(strings: Sequence[str] | None) -> str:
    return "null" if strings is None else f"[{','.join(map(quote, strings))}]"
