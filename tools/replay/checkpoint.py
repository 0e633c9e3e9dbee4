"""Replay checkpoint vectors: write, read and incrementally update one file per line."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkpoint
from tools.replay.report import Outcome, ReplayError, difference, read_vectors


def replay_file(path: Path) -> Iterator[Outcome]:
    """Yield an outcome per line. Raises ReplayError if the file has a different format."""
    for number, vector in enumerate(read_vectors(path), start=1):
        name = str(vector.get("id", f"number {number}"))
        try:
            model, text = _model(vector), vector["file"].encode()
            expected = int(vector["checksum"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ReplayError(
                f"{path}: vector {name} is not in the checkpoint format: {error!r}"
            ) from error
        yield replay_vector(name, model, text, expected, vector.get("hashed_text"))


def replay_vector(
    name: str, model: checkpoint.Checkpoint, text: bytes, expected: int, hashed: str | None
) -> Outcome:
    """Write, hash, read and update one checkpoint, and compare each with the recording."""
    try:
        return Outcome(name, _differences(model, text, expected, hashed))
    except Exception as error:  # a crash on one vector must not hide the other results
        return Outcome(name, [f"raised {error!r}"])


def _differences(
    model: checkpoint.Checkpoint, text: bytes, expected: int, hashed: str | None
) -> list[str]:
    found = difference("dumps", text, checkpoint.dumps(model))
    found += difference("checksum", expected, checkpoint.checksum(model))
    if hashed is not None:
        found += difference("hashed text", hashed.encode(), checkpoint.hashed_text(model))
    try:
        found += difference("loads", model, checkpoint.loads(text))
    except checkpoint.CheckpointError as error:
        found.append(f"loads: {error}")
    # A Document cannot have [] as entries or null as registered devices, because no kubelet
    # writes these.
    if model.entries != () and model.registered_devices is not None:
        found += difference("document", text, _grown(model))
    return found


def _grown(model: checkpoint.Checkpoint) -> bytes:
    """Return the file as written by a document that had other content before."""
    document = checkpoint.Document()
    document.put("gone", [checkpoint.render_entry(_OTHER)])
    document.set_registered({"vendor.com/other": ("a", "b")})
    document.render()
    for number, entry in enumerate(model.entries or ()):
        document.put(str(number), [checkpoint.render_entry(entry)])
        if number % 7 == 0:
            document.render()
    document.remove("gone")
    document.set_registered(model.registered_devices or {})
    return document.render()


_OTHER = checkpoint.PodDevicesEntry("u", "c", "vendor.com/other", {0: ("a",)}, b"\x01")


def _model(vector: dict[str, Any]) -> checkpoint.Checkpoint:
    entries, registered = vector["entries"], vector["registered_devices"]
    return checkpoint.Checkpoint(
        None if entries is None else tuple(_entry(entry) for entry in entries),
        None if registered is None else {name: _ids(ids) for name, ids in registered.items()},
    )


def _entry(entry: dict[str, Any]) -> checkpoint.PodDevicesEntry:
    devices, response = entry["DeviceIDs"], entry["AllocResp"]
    return checkpoint.PodDevicesEntry(
        entry["PodUID"],
        entry["ContainerName"],
        entry["ResourceName"],
        None if devices is None else {int(node): _ids(ids) for node, ids in devices.items()},
        None if response is None else base64.b64decode(response, validate=True),
    )


def _ids(ids: list[str] | None) -> tuple[str, ...] | None:
    return None if ids is None else tuple(ids)
