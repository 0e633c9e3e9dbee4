"""Write a fleet to an archive, and read it. Needs the extra ``snapshot``.

The archive has the form of a snapshot archive (``snapshot.packing``). It contains the index
``fleet.json``, one JSON file for each kind of object, such as ``pods.json``, and the snapshot
archives of nodes.
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Mapping
from typing import Any, Final

import attrs

from devicemanager.apiserver.kinds import KINDS, RESOURCE_GROUP
from devicemanager.apiserver.structure import StructureError, decoded
from devicemanager.client.validation import defect
from devicemanager.fleet import fields
from devicemanager.fleet.model import Fleet, FleetError, Object
from devicemanager.snapshot.model import Part
from devicemanager.snapshot.packing import Form, pack, unpack
from devicemanager.snapshot.writing import TIME

__all__ = ["FORM", "MAX_PACKED", "SCHEMA", "fleet_archive", "read_fleet"]

SCHEMA: Final = "devicemanager.fleet/v1"
FORM: Final = Form("a fleet", "fleet", "fleet.json", 512 << 20, 1 << 30, 20_000)
MAX_PACKED: Final = 512 << 20


def fleet_archive(fleet: Fleet) -> bytes:
    """Return the bytes of a fleet's archive. Equal fleets lead to equal bytes."""
    files = {f"{plural}.json": _json(list(each)) for plural, each in fleet.objects.items()}
    # A file name has at most 64 characters, and the name of a node up to 253.
    snapshots = {f"node-{n}.tar.gz": each for n, each in enumerate(fleet.archives.values())}
    index = {
        "schema": SCHEMA,
        "taken": fleet.taken,
        "tool": fleet.tool,
        "server": fleet.server,
        "parts": [attrs.asdict(part) for part in fleet.parts],
        "snapshots": dict(zip(snapshots, fleet.archives, strict=True)),
    }
    # Not the current time, so that equal fleets lead to equal bytes.
    modified = calendar.timegm(time.strptime(fleet.taken, TIME))
    return pack({FORM.index: _json(index), **files, **snapshots}, modified, FORM)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def read_fleet(data: bytes, source: str = "fleet") -> Fleet:
    """Return the fleet in the archive ``data``. ``source`` is the archive's name in errors.

    Raises SnapshotError if the data is not an archive of a fleet, and FleetError if the schema is
    unknown or a file in the archive is invalid.
    """
    files = unpack(data, source, FORM)
    index = _decoded(files, FORM.index, source, dict)
    if index.get("schema") != SCHEMA:
        # Cut, because an unknown file can contain a text of any length.
        raise FleetError(
            f"{source}: unknown schema {str(index.get('schema'))[:80]!r}: this version of "
            f"devicemanager reads {SCHEMA}; use the version that wrote the file"
        )
    try:
        parts = tuple(Part(**part) for part in index["parts"])
        snapshots = {str(node): files[file] for file, node in index["snapshots"].items()}
        taken, tool, server = (str(index[name]) for name in ("taken", "tool", "server"))
    except (LookupError, TypeError, AttributeError) as error:
        raise FleetError(f"{source}: {FORM.index}: missing or invalid field: {error}") from None
    objects = {
        plural: _objects(files, plural, source)
        for plural in fields.KINDS
        if f"{plural}.json" in files
    }
    return Fleet(taken, tool, server, parts, objects, snapshots)


def _objects(files: Mapping[str, bytes], plural: str, source: str) -> tuple[Object, ...]:
    name = f"{plural}.json"
    found = _decoded(files, name, source, list)
    for number, each in enumerate(found):
        problem = _defect(each, plural) if isinstance(each, dict) else "not an object"
        if problem:
            raise FleetError(f"{source}: {name}: item {number}: {problem}")
    return tuple(found)


def _defect(value: Any, plural: str) -> str:
    # A fleet stores no resourceVersion, and not always a UID, but the check of Nodes and Pods
    # requires both.
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        metadata = {"resourceVersion": "1", "uid": "-", **metadata}
    if not all(isinstance(value.get(each), dict) for each in ("spec", "status")):
        return "spec or status is not an object"
    kind = KINDS[plural]
    if found := defect({**value, "metadata": metadata}) or fields.problem(
        value, fields.KINDS[plural]
    ):
        return found
    if kind.group == RESOURCE_GROUP:
        try:
            decoded(value, kind.api_version, kind.name)
        except StructureError as error:
            return str(error)
    return ""


def _decoded(files: Mapping[str, bytes], name: str, source: str, kind: type) -> Any:
    try:
        found = json.loads(files[name])
    # Deeply nested JSON raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise FleetError(f"{source}: {name}: {error}") from None
    if not isinstance(found, kind):
        raise FleetError(
            f"{source}: {name}: expected a JSON {'list' if kind is list else 'object'}"
        )
    return found
