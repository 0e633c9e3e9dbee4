"""Replay vectors of device selectors: results of Kubernetes' CEL environment for a device.

A row is an expression with its recorded results: its value for the device, and whether a new object
may contain it. A row agrees if the product has the same results. A row is *refused*, not wrong, if
the product does not support the expression. Error texts are compared and counted, but a different
text is not wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import attrs

from devicemanager.claims.cel import dra
from tools.replay.report import ReplayError, difference, read_vectors

MAX_REFUSED = 0.06
"""Maximum share of rows that may be refused."""
VERSIONS = {each.value: each for each in dra.Release}
_SHARED_DEVICES = "cel-dra-devices.json"
_CUT = "[cut:"
"""Text that marks a shortened text in the file."""

Row = Mapping[str, Any]


@attrs.frozen
class Outcome:
    """Result of one row."""

    id: str
    category: str
    refused: str = ""
    """Reason why the product does not evaluate the expression; empty if it does."""
    differences: tuple[str, ...] = ()
    """Results that differ from the recorded ones."""
    texts: tuple[str, ...] = ()
    """Error texts that differ from the recorded ones."""

    @property
    def kind(self) -> str:
        """``agree``, ``refused`` or ``wrong``."""
        return "wrong" if self.differences else "refused" if self.refused else "agree"


def replay_file(path: Path, versions: Sequence[str] = tuple(VERSIONS)) -> Iterator[Outcome]:
    """Replay the rows of a file. The devices are in a file beside it.

    Raises ReplayError for a file in another format, and for an unknown version.
    """
    if unknown := set(versions) - VERSIONS.keys():
        raise ReplayError(f"unknown version {min(unknown)}: use {' or '.join(VERSIONS)}")
    devices = read_devices(path)
    for row in read_vectors(path):
        try:
            yield replay_row(row, devices[row["device"]], versions)
        except (KeyError, TypeError, AttributeError) as error:
            raise ReplayError(f"row {row.get('id', '?')} is malformed: {error!r}") from error


def read_devices(path: Path) -> Mapping[str, dra.Device]:
    """Return the devices for a file of rows, by name. They are in ``NAME-devices.json`` beside the
    file ``NAME.jsonl``, or in the file that all sets share."""
    own = path.with_name(f"{path.stem}-devices.json")
    file = own if own.exists() else path.with_name(_SHARED_DEVICES)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReplayError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ReplayError(f"{file}: is not JSON: {error}") from error
    return {name: _device(device) for name, device in found.items()}


def _device(document: Mapping[str, Any]) -> dra.Device:
    return dra.Device(
        document["driver"],
        {name: _attribute(each) for name, each in document["attributes"].items()},
        document["capacity"],
        document.get("allowMultipleAllocations", False),
    )


def _attribute(document: Mapping[str, Any]) -> dra.Attribute:
    ((kind, value),) = document.items()
    return dra.Attribute(kind, tuple(value) if isinstance(value, list) else value)


def replay_row(row: Row, device: dra.Device, versions: Sequence[str] = tuple(VERSIONS)) -> Outcome:
    """Replay one row with the expectations of all versions."""
    refused, differences, texts = "", list[str](), list[str]()
    for version in versions:
        want = {**row, **(row.get("v1_37", {}) if version == "1.37" else {})}
        found = _evaluated(row["expression"], device, VERSIONS[version])
        refused = refused or found.refused
        if not found.refused:
            differences += [f"{version}: {each}" for each in _differences(want, found)]
            texts += [f"{version}: {each}" for each in _texts(want, found)]
    return Outcome(row["id"], row["category"], refused, tuple(differences), tuple(texts))


@attrs.frozen
class _Found:
    compiled: str
    result: object = None
    admission: str = "same"
    refused: str = ""


def _evaluated(expression: str, device: dra.Device, release: dra.Release) -> _Found:
    # The main columns were recorded with both gates on.
    features = dra.Features(release, list_attributes=True)
    try:
        selector = dra.compile_selector(expression, features=features)
    except dra.CelCompileError as error:
        return _Found(str(error), refused="" if error.is_supported else str(error))
    admission = dra.check_new_selector(expression, features=features) or "ok"
    try:
        return _Found("ok", selector.evaluate(device), admission)
    except dra.CelRuntimeError as error:
        refused = "" if error.is_supported else str(error)
        return _Found("ok", str(error), admission, refused)


def _differences(want: Row, found: _Found) -> list[str]:
    """Return the results that differ. An error at compile time equals an error at run time."""
    expected = want["result"] if isinstance(want["result"], bool) else "error"
    actual = found.result if isinstance(found.result, bool) else "error"
    return [
        *difference("answer", expected, actual),
        *difference("admission", want["admission"], _as_recorded(want, found)),
    ]


def _as_recorded(want: Row, found: _Found) -> str:
    """Return the result of the check of a new object, as a recording has it. If the expression does
    not compile on both sides, return the recorded result."""
    is_error = want["compile"] != "ok" and found.compiled != "ok"
    return want["admission"] if is_error else found.admission


def _texts(want: Row, found: _Found) -> list[str]:
    pairs = (("compile", found.compiled), ("result", found.result))
    return [
        text
        for key, actual in pairs
        if _CUT not in str(want[key]) and key not in want.get("unstable", ())
        for text in difference(key, want[key], actual)
    ]


def report(outcomes: Iterable[Outcome], out: TextIO, show_texts: bool = False) -> int:
    """Print the differences, and a table of the results by category. Return 0 if no row is wrong
    and at most ``MAX_REFUSED`` are refused, else 1."""
    every = list(outcomes)
    for outcome in every:
        shown = [*outcome.differences, *(outcome.texts if show_texts else ())]
        if shown:
            print(f"{outcome.id}: {outcome.kind}", *shown, sep="\n  ", file=out)
    _print_table(every, out)
    for reason, count in Counter(each.refused for each in every if each.refused).most_common():
        print(f"refused {count}: {reason}", file=out)
    kinds = Counter(each.kind for each in every)
    print(
        f"{kinds['agree']} of {len(every)} agree, {kinds['refused']} refused,"
        f" {kinds['wrong']} wrong; {sum(1 for each in every if each.texts)} with other texts",
        file=out,
    )
    return int(not every or bool(kinds["wrong"]) or kinds["refused"] > MAX_REFUSED * len(every))


def _print_table(outcomes: Sequence[Outcome], out: TextIO) -> None:
    counts = Counter((each.category, each.kind) for each in outcomes)
    print(f"{'category':<12}{'agree':>8}{'refused':>8}{'wrong':>8}", file=out)
    for category in dict.fromkeys(each.category for each in outcomes):
        cells = (counts[category, kind] for kind in ("agree", "refused", "wrong"))
        print(f"{category:<12}{''.join(f'{each:>8}' for each in cells)}", file=out)
