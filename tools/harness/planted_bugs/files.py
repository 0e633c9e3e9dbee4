"""Files that the kubelet reads: manifests, CDI specifications, checkpoints."""

from __future__ import annotations

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
    """Visit every node of a value as often as it is referenced. This takes time, not memory."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            _visit(each)
