"""Read and check CDI specification files.

The format is that of the Container Device Interface up to version 1.1: JSON or YAML with
``cdiVersion``, ``kind``, ``devices`` and ``containerEdits``. A file with an error is rejected as a
whole, because an incomplete device is worse than no device. ``_Table`` rejects unknown fields: it
removes each field that is read, and raises an error if fields remain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from devicemanager.core.api.cdi import is_device, is_kind
from devicemanager.core.printable import printable
from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.kubelet.runtime.cdi.values import (
    CdiDeviceNode,
    CdiHook,
    CdiMount,
    CdiNetDevice,
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
)
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.objects.manifests.errors import ManifestError, described, plain, shown

__all__ = ["load_spec"]

_VERSIONS = {*(f"0.{minor}.0" for minor in range(1, 9)), "1.0.0", "1.1.0"}
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_NODE_TYPES = ("b", "c", "u", "p")
_T = TypeVar("_T")
_MAX_SIZE = 1 << 20
"""Maximum size of a file in bytes. Files of drivers with many devices have about 100 KB."""
_MAX_TEXT = 500
_MAX_INT64, _MAX_UINT32 = 2**63 - 1, 2**32 - 1


class _Invalid(ValueError):
    """Error of an invalid file; the caller adds the file name to its text."""


def load_spec(path: Path) -> CdiSpec:
    """Read and check one ``.json`` or ``.yaml`` file. Raises ``CdiSpecError`` if it is invalid.

    The path and the contents can be untrusted. Only a regular file of at most 1 MiB is read. YAML
    aliases are counted before they are expanded.
    """
    try:
        return _spec(path, _document(path))
    except OSError as error:
        raise _rejected(path, error.strerror or str(error)) from error
    # ValueError also covers text that is not UTF-8 or not JSON. Deeply nested JSON causes a
    # RecursionError.
    except (ValueError, RecursionError, FileRejected, ManifestError) as error:
        raise _rejected(path, str(error)) from error


def _rejected(path: Path, reason: str) -> CdiSpecError:
    # Errors of the YAML parser have several lines; ``Registry.errors`` has one line per file.
    return CdiSpecError(f"{printable(str(path))}: {printable(' '.join(reason.split()), _MAX_TEXT)}")


def _document(path: Path) -> Any:
    text = read_regular(path, _MAX_SIZE).decode()
    # By the file name, not the contents: YAML also accepts texts that are invalid JSON.
    if path.suffix == ".json":
        return json.loads(text)
    documents = load_documents(text)
    if len(documents) != 1:
        raise _Invalid(f"{len(documents)} YAML documents: expected one")
    return documents[0]


class _Table:
    """A mapping in the file whose fields are removed as they are read.

    ``end`` raises an error for fields that were not read.
    """

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise _Invalid(f"{place} must be a mapping with text keys")
        self._left = dict(value)
        self.place = place

    def end(self) -> None:
        if self._left:
            raise _Invalid(
                f"{self.place} has unknown fields: {', '.join(map(plain, sorted(self._left)))}"
            )

    def _take(self, key: str, kind: type[_T], name: str) -> _T | None:
        value = self._left.pop(key, None)
        # bool is a subclass of int, but true is not a number in a file.
        if value is not None and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            raise _Invalid(f"{self.place}.{key} must be {name}, not {described(value)}")
        return value

    def text(self, key: str) -> str | None:
        value = self._take(key, str, "text")
        return None if value is None else _text(value, f"{self.place}.{key}")

    def required(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise _Invalid(f"{self.place}.{key} is missing")
        return value

    def path(self, key: str) -> str:
        value = self.required(key)
        if not value.startswith("/"):
            raise _Invalid(f"{self.place}.{key} must be an absolute path, not {shown(value)}")
        return value

    def number(self, key: str, most: int = _MAX_INT64) -> int | None:
        value = self._take(key, int, "a whole number")
        if value is not None and not 0 <= value <= most:
            wanted = f"a whole number from 0 to {most}"
            raise _Invalid(f"{self.place}.{key} must be {wanted}, not {described(value)}")
        return value

    def flag(self, key: str) -> bool | None:
        return self._take(key, bool, "true or false")

    def table(self, key: str) -> _Table | None:
        value = self._left.pop(key, None)
        return None if value is None else _Table(value, f"{self.place}.{key}")

    def items(self, key: str, item: Callable[[Any, str], _T]) -> tuple[_T, ...]:
        values = self._take(key, list, "a list") or []
        return tuple(item(v, f"{self.place}.{key}[{i}]") for i, v in enumerate(values))

    def tables(self, key: str, item: Callable[[_Table], _T]) -> tuple[_T, ...]:
        def parse(value: Any, place: str) -> _T:
            table = _Table(value, place)
            result = item(table)
            table.end()
            return result

        return self.items(key, parse)


def _spec(path: Path, document: Any) -> CdiSpec:
    table = _Table(document, "specification")
    version = table.required("cdiVersion")
    if version.removeprefix("v") not in _VERSIONS:
        raise _Invalid(f"unknown cdiVersion {shown(version)}: use 0.1.0 to 1.1.0")
    kind = table.required("kind")
    if not is_kind(kind):
        raise _Invalid(f"invalid kind {shown(kind)}: use vendor.com/class")
    # Read only to check that they are a mapping: annotations do not change a container.
    table.table("annotations")
    listed = table.tables("devices", _device)
    devices = dict(listed)
    if not devices:
        raise _Invalid("specification.devices is empty: expected at least one device")
    # A dict would keep only the last of two devices with the same name.
    if len(devices) < len(listed):
        names = Counter(name for name, _ in listed)
        twice = shown(max(names, key=names.__getitem__))
        raise _Invalid(f"duplicate device {twice}")
    edits = _edits(table.table("containerEdits"))
    table.end()
    return CdiSpec(path, kind, version, devices, edits)


def _device(table: _Table) -> tuple[str, ContainerEdits]:
    name = table.required("name")
    if not is_device(name):
        raise _Invalid(
            f"{table.place}.name is not a valid device name: {shown(name)}: use only letters, "
            'digits and the characters "_-.:", with a letter or digit at both ends'
        )
    table.table("annotations")
    edits = _edits(table.table("containerEdits"))
    # The CDI specification requires edits for every device.
    if edits == ContainerEdits():
        raise _Invalid(
            f"{table.place}.containerEdits is empty for device {shown(name)}: expected edits"
        )
    return name, edits


def _edits(table: _Table | None) -> ContainerEdits:
    if table is None:
        return ContainerEdits()
    edits = ContainerEdits(
        env=table.items("env", _env),
        device_nodes=table.tables("deviceNodes", _device_node),
        mounts=table.tables("mounts", _mount),
        hooks=table.tables("hooks", _hook),
        net_devices=table.tables("netDevices", _net_device),
        additional_gids=table.items("additionalGids", _gid),
        intel_rdt=_intel_rdt(table.table("intelRdt")),
    )
    table.end()
    return edits


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _Invalid(f"{place} must be text, not {described(value)}")
    # An OCI configuration cannot contain a lone surrogate or a NUL.
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise _Invalid(f"{place} has an invalid character (NUL or surrogate): {shown(value)}")
    return value


def _env(value: Any, place: str) -> str:
    text = _text(value, place)
    # The name and "=" are required; the value may be empty.
    if text.find("=") < 1:
        raise _Invalid(f"{place} must be of the form NAME=value, not {shown(text)}")
    return text


def _gid(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_UINT32:
        raise _Invalid(f"{place} must be a group id, not {described(value)}")
    return value


def _device_node(table: _Table) -> CdiDeviceNode:
    path = table.path("path")
    kind = table.text("type")
    permissions = table.text("permissions")
    if kind and kind not in _NODE_TYPES:
        raise _Invalid(f"{table.place}.type must be one of b, c, u, p, not {shown(kind)}")
    if set(permissions or "") - set("rwm"):
        raise _Invalid(
            f"invalid {table.place}.permissions {shown(permissions)}: use some of r, w and m"
        )
    return CdiDeviceNode(
        path=path,
        host_path=table.text("hostPath") or path,
        # An empty type is like a missing one: the device node on the host decides.
        type=kind or None,
        major=table.number("major"),
        minor=table.number("minor"),
        file_mode=table.number("fileMode", _MAX_UINT32),
        # Container runtimes have the same default.
        permissions=permissions or "rwm",
        uid=table.number("uid", _MAX_UINT32),
        gid=table.number("gid", _MAX_UINT32),
    )


def _mount(table: _Table) -> CdiMount:
    return CdiMount(
        # Not always a path: for a tmpfs, hostPath can be any text.
        host_path=table.required("hostPath"),
        container_path=table.path("containerPath"),
        options=table.items("options", _text),
        type=table.text("type") or "bind",
    )


def _hook(table: _Table) -> CdiHook:
    name = table.required("hookName")
    if name not in _HOOKS:
        raise _Invalid(
            f"{table.place}.hookName must be one of {', '.join(_HOOKS)}, not {shown(name)}"
        )
    return CdiHook(
        name=name,
        path=table.path("path"),
        args=table.items("args", _text),
        env=table.items("env", _env),
        timeout=table.number("timeout"),
    )


def _net_device(table: _Table) -> CdiNetDevice:
    return CdiNetDevice(table.required("hostInterfaceName"), table.required("name"))


def _intel_rdt(table: _Table | None) -> dict[str, Any] | None:
    if table is None:
        return None
    texts = {key: table.text(key) for key in ("closID", "l3CacheSchema", "memBwSchema")}
    flags = {key: table.flag(key) for key in ("enableCMT", "enableMBM", "enableMonitoring")}
    schemata = {"schemata": list(table.items("schemata", _text)) or None}
    table.end()
    return {k: v for k, v in {**texts, **flags, **schemata}.items() if v is not None}
