"""Replay scenarios of the DRA manager: drivers register, pods come and go, the kubelet restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from devicemanager.core.versions.version import KubeletVersion, VersionError
from tools.replay.dra_expected import expected_steps
from tools.replay.dra_kubelet import DraKubelet
from tools.replay.report import Outcome, ReplayError, difference, read_vectors

Json = Mapping[str, Any]


def replay_file(path: Path, version: str) -> Iterator[Outcome]:
    """Yield an outcome per scenario that has results of the kubelet version. Raises ReplayError for
    a file in another format, and for a version without results."""
    try:
        kubelet = KubeletVersion.parse(version)
    except VersionError as error:
        raise ReplayError(str(error)) from error
    found = False
    for number, vector in enumerate(read_vectors(path), start=1):
        name = str(vector.get("id", f"number {number}"))
        try:
            steps = expected_steps(vector, kubelet)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ReplayError(
                f"{path}: vector {name} is not in the DRA format: {error!r}"
            ) from error
        if steps is not None:
            found = True
            yield replay_vector(name, vector, steps, kubelet)
    if not found:
        raise ReplayError(f"{path}: no scenario has results of kubelet {version}")


def replay_vector(
    name: str, vector: Json, expected: list[dict[str, Any]], version: KubeletVersion
) -> Outcome:
    """Run one scenario, and compare each step."""
    differences: list[str] = []
    try:
        kubelet = DraKubelet(vector, version)
        for number, (op, wanted) in enumerate(zip(vector["ops"], expected, strict=True)):
            actual = _with_form_of(kubelet.step(op), wanted)
            for key in sorted({*wanted, *actual}):
                if wanted.get(key) != actual.get(key):
                    text = f"step {number} ({op['op']}) {key}"
                    differences += difference(text, wanted.get(key), actual.get(key))
    except Exception as error:  # a crash on one vector must not hide the other results
        differences.append(f"raised {error!r}")
    return Outcome(name, differences)


def _with_form_of(actual: dict[str, Any], wanted: Json) -> dict[str, Any]:
    """Return the result with the changed state file in the form of ``wanted``: either its text, or
    its claims and checksum."""
    text = actual.get("file")
    if text is not None and "claims" in wanted:
        outer = json.loads(text)
        del actual["file"]
        actual["claims"] = json.loads(outer["Data"])["ClaimInfoStateList"]
        actual["checksum"] = outer["Checksum"]
    return actual
