"""Check the inspection and the repair of a damaged state file of the DRA manager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from checkpoint import CheckpointCorrupt, dra
from devicemanager.snapshot import PodDirectories, Snapshot, findings
from tools.damage.checkpoints import commands_faults
from tools.damage.verification import false_findings

VECTORS: Final = Path(__file__).parents[2] / "tests/data/vectors/dra-manager.jsonl"


def read_files(path: Path = VECTORS) -> list[bytes]:
    """Return the state files with claims in recorded scenarios."""
    found: dict[bytes, None] = {}
    for line in path.read_text().split("\n"):
        for step in json.loads(line)["expect"] if line else ():
            if step.get("claims"):
                found[_file(step["claims"])] = None
    return list(found)


def _file(claims: object) -> bytes:
    inner = json.dumps({"ClaimInfoStateList": claims}, ensure_ascii=False)
    # Only the text of a kubelet has a checksum that matches after a repair.
    state = dra.loads(json.dumps({"Data": inner, "Checksum": 0}).encode(), verify=False)
    return dra.dumps(state)


def faults(original: bytes, data: bytes) -> Iterator[str]:
    """Yield each error in the inspection or repair of ``data``, a damaged copy of ``original``."""
    found, repaired = dra.inspect(data), dra.repair(data)
    loaded = _loaded(data)
    if (loaded is None) is not bool(found.problems):
        yield f"a kubelet would {'reject' if loaded is None else 'load'} it: {found.problems}"
    if (loaded is None) is not (dra.kubelet_error(data) is not None):
        yield f"the kubelet's error is {dra.kubelet_error(data)}"
    if _loaded(repaired.data) != repaired.state:
        yield "a kubelet would load the repaired file differently"
    if dra.repair(repaired.data).changed:
        yield "repairing the repaired file changes it again"
    if loaded is not None and _meaning(loaded) != _meaning(repaired.state):
        yield "repair changes the content of an intact file"
    if not repaired.changed and repaired.data != data:
        yield "repair reports no change, but the file is different"
    if not dra.is_state_file(data, dra.STATE_NAME):
        yield "it is not recognized"
    yield from _inventions(data, repaired.state)
    if loaded is None:
        yield from _losses(original, data, repaired.state)
    yield from _false_findings(data)


def _loaded(data: bytes) -> dra.State | None:
    try:
        return dra.loads(data)
    except CheckpointCorrupt:
        return None


def _meaning(state: dra.State) -> object:
    """Return what a kubelet would load: of two claims with one name, the last one counts."""
    return {(claim.namespace, claim.name): claim for claim in state.claims or ()}


def _inventions(data: bytes, repaired: dra.State) -> Iterator[str]:
    """Yield names in the repaired file that are not in the damaged one."""
    for claim in repaired.claims or ():
        for name in (claim.namespace, claim.name, claim.uid, *claim.pods):
            if name.isalnum() and name.encode() not in data:
                yield f"invented: {name!r}"


def _losses(original: bytes, data: bytes, repaired: dra.State) -> Iterator[str]:
    """Yield claims whose text is intact in the damaged file, but missing in the repaired one."""
    state = dra.loads(original, verify=False)
    present = _meaning(repaired)
    assert isinstance(present, dict)
    for claim in state.claims or ():
        text = _text(claim)
        is_present = (claim.namespace, claim.name) in present
        if text in data and not is_present and not _is_nested(data, text):
            yield f"lost: {claim.namespace}/{claim.name}"


def _text(claim: dra.ClaimState) -> bytes:
    """Return the text of a claim within a file."""
    file = dra.dumps(dra.State((claim,)))
    return file[file.index(b"[{") + 1 : file.rindex(b"}]}") + 1]


def _is_nested(data: bytes, text: bytes) -> bool:
    """True if the damage has moved the text of a claim inside another value."""
    before = data[: data.index(text)].rstrip()
    return not before.endswith((b"[", b","))


def _false_findings(data: bytes) -> Iterator[str]:
    uids = PodDirectories(("pod-1-uid", "pod-2-uid", "pod-3-uid"))
    snapshot = Snapshot("2026-01-31T12:00:00Z", "0", "worker", "/", directories=uids)
    snapshot = attrs.evolve(snapshot, dra_state=data)
    found = [each for each in findings(snapshot) if "claim" in each.kind or "pre" in each.kind]
    yield from false_findings(snapshot, found)


def command_faults(data: bytes) -> Iterator[str]:
    """Yield each error of the checkpoint commands on a state file with the content ``data``."""
    yield from commands_faults(
        data,
        dra.STATE_NAME,
        dra.repair(data).data,
        lambda after: _loaded(after) is not None,
    )
