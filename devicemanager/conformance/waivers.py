"""Waivers: failed checks that the user accepts until a date."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from devicemanager.conformance.outcomes import CheckError, Outcome
from devicemanager.io.safe_read import not_utf8
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import ManifestError

__all__ = ["Waiver", "Waivers"]


@attrs.frozen
class Waiver:
    """Permission for one check to fail until a date."""

    id: str
    reason: str
    expires: datetime.date
    """Last day on which the waiver is valid."""


class Waivers:
    """All waivers of a run.

    ``read`` reads them from a YAML file: a list of entries with ``id``, ``reason`` and ``expires``
    (a date such as 2027-06-30). If the waiver of a check has expired, a failure of the check stays
    a failure, and a warning becomes a failure. The text of the check then mentions the expired
    waiver.
    """

    def __init__(self, waivers: Sequence[Waiver], today: datetime.date | None = None) -> None:
        self._by_id = {waiver.id: waiver for waiver in waivers}
        self._today = today or datetime.date.today()

    @classmethod
    def read(cls, path: Path, known: Sequence[str]) -> Self:
        """Read waivers from a YAML file. ``known`` are the IDs of all checks.

        Raises CheckError, with the position of the mistake, if the file is invalid.
        """
        try:
            documents = load_documents(path.read_bytes().decode())
        except OSError as error:
            raise CheckError(f"cannot read waivers {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise CheckError(
                f"invalid waivers {path}: {not_utf8(error)}: save it as UTF-8"
            ) from error
        except ManifestError as error:
            raise CheckError(f"invalid waivers {path}: {error}") from error
        content = documents[0] if len(documents) == 1 else None
        if not isinstance(content, list):
            raise CheckError(
                f"invalid waivers {path}: expected a list of mappings with id, reason and expires"
            )
        waivers: dict[str, Waiver] = {}
        for number, entry in enumerate(content, 1):
            where = f"waivers {path}: entry {number}"
            waiver = _waiver(where, entry, known)
            # Two waivers for one check would be ambiguous.
            if waivers.setdefault(waiver.id, waiver) is not waiver:
                raise CheckError(f"{where}: duplicate waiver for {waiver.id}: keep only one")
        return cls(list(waivers.values()))

    def applied(self, id_: str, outcome: Outcome, seen: str) -> tuple[Outcome, str]:
        """Apply the waiver of check ``id_`` to a failure or warning with the text ``seen``. Return
        the new outcome and text.

        Without a waiver, both are unchanged. With an expired waiver, the outcome is a failure.
        """
        waiver = self._by_id.get(id_)
        if waiver is None:
            return outcome, seen
        # A warning becomes a failure, too, so that an expired waiver is noticed.
        if self._today > waiver.expires:
            return Outcome.FAIL, f"{seen} (its waiver expired on {waiver.expires})"
        return Outcome.WAIVED, f"{seen} (waived until {waiver.expires}: {waiver.reason})"


def _waiver(where: str, entry: Any, known: Sequence[str]) -> Waiver:
    if not isinstance(entry, dict) or entry.keys() != {"id", "reason", "expires"}:
        raise CheckError(f"{where}: invalid waiver {entry!r}: expected id, reason and expires")
    id_, reason, expires = entry["id"], entry["reason"], entry["expires"]
    if id_ not in known:
        raise CheckError(f"{where}: unknown check {id_!r}: use an ID such as K01")
    if not isinstance(reason, str) or not reason.strip():
        raise CheckError(f"{where}: empty reason: say why {id_} may fail")
    # Not isinstance: a datetime is a date, too, but it has a time, which would be ignored.
    if type(expires) is not datetime.date:
        raise CheckError(
            f"{where}: invalid expires {expires!r}: expected a date such as 2027-06-30"
        )
    return Waiver(id_, reason, expires)
