"""Parse documents into a script, or raise an error that names the file and field.

Several documents can form one script, for example the outputs of ``devicemanager pods -o json`` and
``devicemanager resources -o json``. The output of ``resources`` has the fields of ``allocatable``
at its top level.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from devicemanager.core.versions.version import KubeletVersion, VersionError
from devicemanager.faults import Fault, FaultError
from devicemanager.faults.injection_point import InjectionPoint
from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import ManifestError
from devicemanager.testing.mock_podresources.content import ContentReader
from devicemanager.testing.mock_podresources.fields import (
    Read,
    ScriptError,
    Where,
    fields,
    flag,
    listed,
    number,
    text,
    whole,
)
from devicemanager.testing.mock_podresources.script import Script, Step

__all__ = ["ScriptError", "load_script", "read_script"]

MOST_BYTES = 64 << 20
"""Maximum size of one script file, in bytes."""
_MOST_NODES = 4_000_000
_CONTENT = ("devices", "cpu_ids", "memory")
"""Fields at the top level of ``devicemanager resources -o json``."""


def load_script(
    *paths: str | os.PathLike[str], contents: Mapping[str, bytes] | None = None
) -> Script:
    """Load a script from one or several YAML or JSON files.

    The files can also be outputs of ``devicemanager pods -o json`` and ``resources -o json``.
    ``contents``: contents of files that are already read, by path. Raises ScriptError for an
    unreadable file or an invalid script.
    """
    documents: list[tuple[str, Any]] = []
    for path in paths:
        name = str(path)
        documents += [(name, each) for each in _documents(name, (contents or {}).get(name))]
    return _read(documents)


def read_script(*documents: Mapping[str, Any]) -> Script:
    """Parse a script from one or several dicts. Raises ScriptError for an invalid script."""
    return _read([(f"document {n}", each) for n, each in enumerate(documents, start=1)])


def _documents(path: str, data: bytes | None) -> list[object]:
    try:
        # Do not use open(): a pipe would block, and a huge file would exhaust the memory.
        content = (read_regular(path, MOST_BYTES) if data is None else data).decode()
        return load_documents(content, MOST_BYTES, _MOST_NODES, "too large")
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}") from error
    except (FileRejected, UnicodeDecodeError) as error:
        reason = error if isinstance(error, FileRejected) else "not UTF-8 text"
        raise ScriptError(f"cannot read {path}: it is {reason}") from error
    except ManifestError as error:
        raise ScriptError(f"{path}: {error}") from error


def _read(documents: Iterable[tuple[str, Any]]) -> Script:
    content = ContentReader()
    allowed = (*_readers(content), "schema", *_CONTENT)
    # Fields of all documents, unparsed: references between documents need all of them.
    values: dict[str, tuple[Where, Any]] = {}
    for name, document in documents:
        where = Where.of(name)
        plain = fields(where, document, dict.fromkeys(allowed, lambda _where, value: value))
        top_level = {key: plain.pop(key) for key in _CONTENT if key in plain}
        if top_level:
            if "allocatable" in plain:
                raise where.error(f"{', '.join(top_level)}: move these fields to allocatable")
            plain["allocatable"] = top_level
        # Outputs of the commands have the field `schema`.
        plain.pop("schema", None)
        for key, value in plain.items():
            if key in values:
                raise where.error(f"duplicate field {key}: another document also has it")
            values[key] = (where.field(key), value)
    parsed = {
        key: reader(*values[key]) for key, reader in _readers(content).items() if key in values
    }
    return _script(parsed, values)


def _script(parsed: dict[str, Any], values: dict[str, tuple[Where, Any]]) -> Script:
    limit: dict[str, Any] = parsed.pop("rate_limit", {})
    if "pod_resources" in parsed:
        # In files, the field has the name that the output of `devicemanager pods -o json` uses.
        parsed["pods"] = parsed.pop("pod_resources")
    steps = parsed.get("steps", ())
    # A repeated script without pauses would change the content in an endless loop.
    if parsed.get("repeat") and not sum(step.after for step in steps):
        raise values["repeat"][0].error("the steps have no pauses: add `after` to a step")
    return Script(**parsed, **limit)


def _readers(content: ContentReader) -> dict[str, Read[Any]]:
    return {
        # Parsed first, because containers can refer to its devices by index.
        "allocatable": content.allocatable,
        "pod_resources": content.pods,
        "kubelet_version": _version,
        "rate_limit": _rate_limit,
        # Python's random generator accepts seeds of any size.
        "seed": whole(0, most=None),
        "faults": listed(_fault),
        "steps": listed(lambda where, value: _step(content, where, value)),
        "repeat": flag,
    }


def _step(content: ContentReader, where: Where, value: Any) -> Step:
    found = fields(
        where,
        value,
        {
            "after": number(0),
            "allocatable": content.allocatable,
            "pod_resources": content.pods,
            "set_pods": content.pods,
            "delete_pods": listed(_pod_name),
            "clear_faults": flag,
            "faults": listed(_fault),
            "serving": flag,
        },
    )
    if "pod_resources" in found:
        found["pods"] = found.pop("pod_resources")
    return Step(**found)


def _pod_name(where: Where, value: Any) -> tuple[str, str]:
    namespace, slash, name = text(where, value).rpartition("/")
    return (namespace if slash else "default"), name


def _version(where: Where, value: Any) -> str:
    # Without quotes, YAML reads 1.30 as the number 1.3.
    try:
        KubeletVersion.parse(value)
    except VersionError as error:
        raise where.error(f"{error}, in quotes") from error
    return text(where, value)


def _rate_limit(where: Where, value: Any) -> dict[str, Any]:
    if value == "none":
        return {"qps": None}
    return fields(where, value, {"qps": number(0, exclusive=True), "burst": whole(1)})


def _fault(where: Where, value: Any) -> Fault:
    try:
        fault = Fault.from_data(value)
    except FaultError as error:
        raise where.error(str(error)) from error
    # Faults at other injection points need a plugin, a checkpoint or a registration.
    if fault.point is not InjectionPoint.POD_RESOURCES:
        raise where.error(
            f"fault {fault.kind.name} needs a kubelet, which this mock server does not have: "
            "use a fault whose name ends with -pod-resources"
        )
    return fault
