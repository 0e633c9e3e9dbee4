"""What our code makes of a damaged checkpoint."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import checkpoint
from checkpoint import Checkpoint, CheckpointCorrupt, PodDevicesEntry

__all__ = ["command_faults", "faults", "run"]

_CHECKSUM: Final = re.compile(r"checksum is (\d+), but the data has (\d+)")
_PLACE: Final = re.compile(r"not UTF-8 at byte (\d+) of (\d+)")
_NAMED: Final = re.compile(r'pod ("(?:[^"\\]|\\.)*")')


def faults(original: bytes, data: bytes) -> Iterator[str]:
    """Each way in which what is said or made of ``data`` is wrong, or worse than it was."""
    found, mended = checkpoint.inspect(data), checkpoint.repair(data)
    loaded = _loaded(data)
    if (loaded is None) is not bool(found.problems):
        yield f"a kubelet would {'reject' if loaded is None else 'load'} it, and {found.problems}"
    if _loaded(mended.data) != mended.checkpoint:
        yield "a kubelet would not load the repaired file as it is told"
    if checkpoint.repair(mended.data).changed:
        yield "the repaired file is repaired again"
    if loaded is not None and _holdings(loaded) != _holdings(mended.checkpoint):
        yield "a file that was good holds something else now"
    if not mended.changed and mended.data != data:
        yield "nothing was to be done, and the file is another"
    yield from _untrue(data, found)
    yield from _made_up(data, mended.checkpoint)
    if loaded is None:
        yield from _lost(original, data, mended.checkpoint)


def _loaded(data: bytes) -> Checkpoint | None:
    try:
        return checkpoint.loads(data)
    except CheckpointCorrupt:
        return None


def _holdings(saved: Checkpoint) -> object:
    """What a kubelet has after it has read that: the last entry of a container counts."""
    entries = {_holder(entry): entry for entry in saved.entries or ()}
    return entries, saved.registered_devices


def _holder(entry: PodDevicesEntry) -> tuple[str, str, str]:
    return entry.pod_uid, entry.container_name, entry.resource_name


def _untrue(data: bytes, found: checkpoint.Inspection) -> Iterator[str]:
    text = data.decode(errors="replace")
    for problem in found.problems:
        if match := _CHECKSUM.search(problem):
            said, has = map(int, match.groups())
            read = checkpoint.loads(data, verify=False)
            if match[1] not in text or has != checkpoint.checksum(read) or said == has:
                yield f"not so: {problem}"
        if match := _PLACE.search(problem):
            place, size = map(int, match.groups())
            if size != len(data) or _is_text(data[: place + 4]) or not _is_text(data[:place]):
                yield f"not so: {problem}"
    for lost in found.lost:
        if lost.startswith("an entry of pod") and (named := _NAMED.search(lost)):
            name = json.loads(named[1]).rstrip("…")  # a long one is cut where it is shown
            spelled = {name, json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]}
            if not any(each in text for each in spelled):
                yield f"not so: lost {lost}"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _made_up(data: bytes, kept: Checkpoint) -> Iterator[str]:
    """Names that do not stand in the file; one with escapes is spelled in many ways."""
    text = data.decode(errors="replace")
    if "\\" in text or "\ufffd" in text:
        return
    for entry in kept.entries or ():
        ids = (id_ for each in (entry.device_ids or {}).values() for id_ in each or ())
        for name in (*_holder(entry), *ids):
            if f'"{name}"' not in text and name:
                yield f"made up: {name!r}"


def _lost(original: bytes, data: bytes, kept: Checkpoint) -> Iterator[str]:
    """Entries that stand in the file unharmed, and are not in the repaired one."""
    before = checkpoint.loads(original, verify=False)
    there = {_holder(entry): entry for entry in kept.entries or ()}
    for entry in before.entries or ():
        text = checkpoint.render_entry(entry).json
        if text in data and _holder(entry) not in there and not _is_nested(data, text):
            yield f"lost: {_holder(entry)}"


def _is_nested(data: bytes, text: bytes) -> bool:
    """Whether the damage has put the entry inside of something else, or in pieces of it."""
    before = data[: data.index(text)].rstrip()
    return not before.endswith((b"[", b","))


def command_faults(data: bytes) -> Iterator[str]:
    """The same through the command, in a directory as a kubelet has it."""
    with tempfile.TemporaryDirectory(prefix="damage-") as name:
        root = Path(name)
        (root / "device-plugins").mkdir()
        file = root / "device-plugins/kubelet_internal_checkpoint"
        file.write_bytes(data)
        for action in ("show", "verify", "repair"):
            yield from _complaints(f"checkpoint {action}", *run("checkpoint", action, str(file)))
        if file.read_bytes() != data:
            yield "the file was changed without --write"
        before = checkpoint.repair(data)
        status, _, errors = run("checkpoint", "repair", str(file), "--write")
        yield from _complaints("checkpoint repair --write", status, "", errors)
        after = file.read_bytes()
        copies = [each.read_bytes() for each in root.glob("*.before-*")]
        if after != data and (after != before.data or copies != [data]):
            yield "the file was replaced by something else, or no copy was kept"
        if status == 0 and _loaded(after) is None:
            yield "it was repaired, and a kubelet would not load it"


def run(*argv: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the command."""
    from devicemanager.cli import main

    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(argv)
    return status, out.getvalue(), errors.getvalue()


def _complaints(what: str, status: int, _: str, errors: str) -> Iterator[str]:
    if status not in (0, 1, 2) or "(a bug;" in errors:
        yield f"{what} ended with {status}: {errors}"
    if any(not line.startswith("devicemanager: ") for line in errors.splitlines()):
        yield f"{what} wrote more than a line: {errors}"
