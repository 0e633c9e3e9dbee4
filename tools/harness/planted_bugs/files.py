"""Planted bugs in readers of files: manifests, CDI specifications, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.harness.planted import planted, replace, set_to


@planted("any file is read")
def _any_file() -> None:
    from devicemanager.io import safe_read

    def read(path: Any, limit: int) -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()

    replace(safe_read.read_regular, read)


@planted("any checkpoint is read")
def _any_checkpoint() -> None:
    from checkpoint import reading

    def read(path: Any) -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()

    replace(reading.read, read)


@planted("YAML is not limited")
def _yaml() -> None:
    from devicemanager.objects.manifests import documents

    replace(documents._check_shape, lambda events, shape: None)


@planted("references are expanded")
def _references() -> None:
    from yaml.constructor import BaseConstructor

    from devicemanager.objects.manifests import documents

    construct = BaseConstructor.construct_document

    def expanded(self: Any, node: Any) -> Any:
        found = construct(self, node)
        _visit(found)
        return found

    set_to(BaseConstructor, "construct_document", expanded)
    replace(documents._check_shape, lambda events, shape: None)


def _visit(value: Any) -> None:
    """Visit every node of a value as often as the node is referenced. This takes time, not
    memory."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            _visit(each)


@planted("checkpoints are any JSON")
def _any_json() -> None:
    from checkpoint import decode

    # Without limits for nesting and digits, and with a search for duplicate keys in a list.
    def decoded(text: str) -> Any:
        import json

        def pairs(found: list[tuple[str, Any]]) -> Any:
            keys: list[str] = []
            for key, _ in found:
                keys += [] if key in keys else [key]
            return dict(found)

        return json.loads(text, object_pairs_hook=pairs)

    replace(decode.decode_text, decoded)


@planted("a bad CDI file is an error")
def _bad_cdi() -> None:
    from devicemanager.kubelet.runtime.cdi import files

    def load(path: Path) -> Any:
        return _spec(path, _document(path))  # type: ignore[name-defined]  # noqa: F821

    replace(files.load_spec, load)


@planted("texts of a file break lines")
def _numa_error() -> None:
    from devicemanager.kubelet.host import numa

    set_to(numa.NumaError, "__init__", Exception.__init__)


@planted("any state of a device is accepted")
def _control_file() -> None:
    from devicemanager.plugin.simulated import control

    def parse(text: str, where: str) -> dict[str, str]:
        lines = (line.split() for line in text.splitlines())
        return {words[0]: words[1] for words in lines if len(words) > 1}

    replace(control.parse_control, parse)


@planted("recorded values have any type")
def _recording() -> None:
    from devicemanager.plugin.recording import calls

    replace(calls._get, lambda kind, data, key: data.get(key))


@planted("archives are trusted")
def _archive() -> None:
    from devicemanager.snapshot import packing

    def member(header: bytes, source: str) -> Any:
        return tarfile.TarInfo.frombuf(header, "utf-8", "strict")  # type: ignore[name-defined]  # noqa: F821

    replace(packing._member, member)


@planted("metadata of pods has any type")
def _kubectl() -> None:
    from devicemanager.snapshot import names

    replace(names._mapping, lambda value: value)


@planted("manifests wait for each other")
def _manifests() -> None:
    from devicemanager.kubelet.pods.static_pods import FileQueue

    replace(FileQueue.add, lambda self, action, patience: action())


@planted("failed writes are ignored")
def _writes() -> None:
    from checkpoint.store import FileStore

    replace(FileStore._failed, lambda self, error, replaced: None)
