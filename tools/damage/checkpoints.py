"""Check the inspection and the repair of a damaged checkpoint."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import checkpoint
from checkpoint import Checkpoint, CheckpointCorrupt, PodDevicesEntry

_CHECKSUM: Final = re.compile(r"has checksum (\d+), but its data has checksum (\d+)")
_PLACE: Final = re.compile(r"not UTF-8 at byte (\d+) of (\d+)")
_NAMED: Final = re.compile(r'pod ("(?:[^"\\]|\\.)*")')


def faults(original: bytes, data: bytes) -> Iterator[str]:
    """Yield each error in the inspection or repair of ``data``, a damaged copy of ``original``."""
    # Inspection must agree with the loader. Repair must be stable when repeated, and lose nothing.
    found, repaired = checkpoint.inspect(data), checkpoint.repair(data)
    loaded = _loaded(data)
    if (loaded is None) is not bool(found.problems):
        verb = "reject" if loaded is None else "load"
        yield f"a kubelet would {verb} it, but the problems are {found.problems}"
    if _loaded(repaired.data) != repaired.checkpoint:
        yield "a kubelet would load the repaired file differently"
    if checkpoint.repair(repaired.data).changed:
        yield "repairing the repaired file changes it again"
    if loaded is not None and _meaning(loaded) != _meaning(repaired.checkpoint):
        yield "repair changes the content of an intact file"
    if not repaired.changed and repaired.data != data:
        yield "repair reports no change, but the file is different"
    yield from _false_statements(data, found)
    yield from _inventions(data, repaired.checkpoint)
    # For an intact file, the comparisons above are enough.
    if loaded is None:
        yield from _losses(original, data, repaired.checkpoint)


def _loaded(data: bytes) -> Checkpoint | None:
    try:
        return checkpoint.loads(data)
    except CheckpointCorrupt:
        return None


def _meaning(saved: Checkpoint) -> object:
    """Return what a kubelet would load from the checkpoint. Of several entries for a container and
    resource, it uses the last."""
    entries = {_key(entry): entry for entry in saved.entries or ()}
    return entries, saved.registered_devices


def _key(entry: PodDevicesEntry) -> tuple[str, str, str]:
    return entry.pod_uid, entry.container_name, entry.resource_name


def _false_statements(data: bytes, found: checkpoint.Inspection) -> Iterator[str]:
    text = data.decode(errors="replace")
    for problem in found.problems:
        if match := _CHECKSUM.search(problem):
            saved, expected = map(int, match.groups())
            read = checkpoint.loads(data, verify=False)
            if match[1] not in text or expected != checkpoint.checksum(read) or saved == expected:
                yield f"false: {problem}"
        if match := _PLACE.search(problem):
            place, size = map(int, match.groups())
            if size != len(data) or _is_text(data[: place + 4]) or not _is_text(data[:place]):
                yield f"false: {problem}"
    for lost in found.lost:
        if lost.startswith("an entry of pod") and (named := _NAMED.search(lost)):
            name = json.loads(named[1]).rstrip("…")  # messages truncate long names
            spelled = {name, json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]}
            if not any(each in text for each in spelled):
                yield f"false: lost {lost}"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _inventions(data: bytes, repaired: Checkpoint) -> Iterator[str]:
    """Yield names in the repaired checkpoint that are not in the file.

    Files with escapes are skipped, because escapes allow several spellings of a name.
    """
    text = data.decode(errors="replace")
    if "\\" in text or "\ufffd" in text:
        return
    for entry in repaired.entries or ():
        ids = (id_ for each in (entry.device_ids or {}).values() for id_ in each or ())
        for name in (*_key(entry), *ids):
            if f'"{name}"' not in text and name:
                yield f"invented: {name!r}"


def _losses(original: bytes, data: bytes, repaired: Checkpoint) -> Iterator[str]:
    """Yield entries that are intact in the damaged file but missing in the repaired checkpoint."""
    before = checkpoint.loads(original, verify=False)
    present = {_key(entry): entry for entry in repaired.entries or ()}
    for entry in before.entries or ():
        text = checkpoint.render_entry(entry).json
        if text in data and _key(entry) not in present and not _is_nested(data, text):
            yield f"lost: {_key(entry)}"


def _is_nested(data: bytes, text: bytes) -> bool:
    """True if the damage has moved the text of an entry inside another value."""
    before = data[: data.index(text)].rstrip()
    return not before.endswith((b"[", b","))


def command_faults(data: bytes) -> Iterator[str]:
    """Yield each error of the checkpoint commands on a checkpoint with the content ``data``, in a
    directory like that of a kubelet."""
    name = "device-plugins/kubelet_internal_checkpoint"
    repaired = checkpoint.repair(data).data
    yield from commands_faults(data, name, repaired, lambda after: _loaded(after) is not None)


def commands_faults(
    data: bytes, name: str, repaired: bytes, loads: Callable[[bytes], bool]
) -> Iterator[str]:
    """Yield each error of the checkpoint commands on the file ``name`` of a kubelet.

    ``repaired`` is what repair must write, and ``loads`` is true for a file that a kubelet loads.
    """
    with tempfile.TemporaryDirectory(prefix="damage-") as directory:
        root = Path(directory)
        file = root / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        for action in ("show", "verify", "repair"):
            status, _, errors = run("checkpoint", action, str(file))
            yield from _command_errors(f"checkpoint {action}", status, errors)
        if file.read_bytes() != data:
            yield "the file was changed without --write"
        status, _, errors = run("checkpoint", "repair", str(file), "--write")
        yield from _command_errors("checkpoint repair --write", status, errors)
        after = file.read_bytes()
        # The old file is the only evidence of the damage, so repair must keep a copy.
        copies = [each.read_bytes() for each in root.glob("*.before-*")]
        if after != data and (after != repaired or copies != [data]):
            yield "the new file is not the repaired one, or there is no copy of the old one"
        if status == 0 and not loads(after):
            yield "it was repaired, but a kubelet would not load it"


def run(*argv: str) -> tuple[int, str, str]:
    """Run a devicemanager command. Return its exit status, standard output and standard error."""
    from devicemanager.cli import main

    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(argv)
    return status, out.getvalue(), errors.getvalue()


def _command_errors(what: str, status: int, errors: str) -> Iterator[str]:
    if status not in (0, 1, 2) or "(a bug;" in errors:
        yield f"{what} exited with {status}: {errors}"
    if any(not line.startswith("devicemanager: ") for line in errors.splitlines()):
        yield f"{what} printed more than one-line errors: {errors}"
