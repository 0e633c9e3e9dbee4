"""Read the kubelet's configuration from its configuration file and its flags.

Only these settings are read: the topology, CPU and memory manager, the feature gates, and the paths
of the kubelet's files. Other fields and flags are ignored, because some of them name credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.objects.manifests.documents import load_documents
from devicemanager.snapshot.model import KubeletConfig

__all__ = ["Alignment", "alignment", "merged_settings", "running_kubelet"]

_MAX_SIZE: Final = 1 << 20
_FIELDS: Final = (
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
    "reservedMemory",
    "reservedSystemCPUs",
    "featureGates",
)
_FLAGS: Final = {
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "memory-manager-policy": "memoryManagerPolicy",
    "reserved-memory": "reservedMemory",
    "reserved-cpus": "reservedSystemCPUs",
    "feature-gates": "featureGates",
}
"""Field of ``KubeletConfiguration`` that each flag sets."""
_PATHS: Final = ("config", "config-dir", "root-dir")
"""Flags that contain paths of the kubelet's files."""
_NAME: Final = b"kubelet"


def running_kubelet(proc: Path) -> tuple[int, dict[str, str]] | None:
    """Return the process ID and the flags of the running kubelet. None if no kubelet runs.

    Only flags that this module reads are returned. ``proc`` is the ``/proc`` of the machine. Raises
    OSError if ``proc`` cannot be read.
    """
    # In numerical order, so that the result is always the same.
    for entry in sorted(os.listdir(proc), key=lambda name: (len(name), name)):  # noqa: PTH208  # text
        if entry.isdecimal() and (words := _command(proc / entry)) is not None:
            wanted = {*_FLAGS, *_PATHS}
            flags = {name: value for name, value in _flags(words) if name in wanted}
            return int(entry), flags
    return None


def _command(process: Path) -> list[str] | None:
    try:
        # Found by the name of the program, because its path differs between distributions.
        if read_regular(process / "comm", _MAX_SIZE).strip() != _NAME:
            return None
        data = read_regular(process / "cmdline", _MAX_SIZE)
    # The process can have ended since the directory was listed.
    except (OSError, FileRejected):
        return None
    return [word.decode(errors="replace") for word in data.split(b"\0")]


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.lstrip("-").partition("=")
        # A flag can be written as --flag=value or --flag value.
        if word.startswith("-"):
            yield name, value if equals else "" if after.startswith("-") else after


def merged_settings(file: Path, directory: Path | None = None) -> dict[str, Any]:
    """Return the fields that this module reads from the configuration file ``file``.

    The files in the drop-in directory ``directory`` override the fields of ``file``. Raises
    OSError or FileRejected if a file cannot be read, and ManifestError for invalid YAML.
    """
    settings: dict[str, Any] = {}
    # Drop-in files are applied in the order of their names (kubelet --config-dir).
    others = [] if directory is None else sorted(directory.glob("*.conf"))
    for path in (file, *others):
        text = read_regular(path, _MAX_SIZE).decode(errors="replace")
        for document in load_documents(text):
            if isinstance(document, Mapping):
                _merge(settings, document)
    return settings


def _merge(settings: dict[str, Any], document: Mapping[Any, Any]) -> None:
    for name in _FIELDS:
        value = document.get(name)
        # Like the kubelet, merge maps by key and replace other values.
        if isinstance(value, Mapping):
            settings[name] = {**settings.get(name, {}), **value}
        elif value is not None:
            settings[name] = value


@attrs.frozen
class Alignment:
    """Effective configuration of the topology, CPU and memory manager. A field that is not
    configured has the kubelet's default."""

    policy: str = "none"
    scope: str = "container"
    options: Mapping[str, str] = attrs.field(factory=dict)
    cpu_policy: str = "none"
    memory_policy: str = "None"
    reserved_cpus: str = ""
    """Reserved CPUs (``reservedSystemCPUs``) in the kernel's list format, such as ``0-3,8``."""
    gates: Mapping[str, bool] = attrs.field(factory=dict)
    """The configured feature gates."""
    cpu_options: Mapping[str, str] = attrs.field(factory=dict)


def alignment(config: KubeletConfig | None) -> Alignment:
    """Return the effective configuration of the topology, CPU and memory manager.

    Flags override the configuration file, and the file overrides defaults. Values of a wrong
    type are ignored, because no kubelet starts with them.
    """
    if config is None:
        return Alignment()
    settings = {**config.settings}
    settings |= {_FLAGS[flag]: value for flag, value in config.flags.items() if flag in _FLAGS}
    given = {
        "policy": _text(settings.get("topologyManagerPolicy")),
        "scope": _text(settings.get("topologyManagerScope")),
        "cpu_policy": _text(settings.get("cpuManagerPolicy")),
        "memory_policy": _text(settings.get("memoryManagerPolicy")),
        "reserved_cpus": _text(settings.get("reservedSystemCPUs")),
    }
    options = _options(settings.get("topologyManagerPolicyOptions"))
    cpu_options = _options(settings.get("cpuManagerPolicyOptions"))
    # Gates are true or false, in the file and in the flag.
    gates = {each: on == "true" for each, on in _options(settings.get("featureGates")).items()}
    named = {name: text for name, text in given.items() if text}
    return Alignment(options=options, cpu_options=cpu_options, gates=gates, **named)


def _text(value: object) -> str:
    # YAML parses a list of one CPU, such as 0, as a number.
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _options(value: object) -> dict[str, str]:
    if isinstance(value, str):
        pairs = (pair.partition("=") for pair in value.split(",") if pair)
        return {name: option for name, _, option in pairs}
    if not isinstance(value, Mapping):
        return {}
    return {
        str(name): str(option).lower() if isinstance(option, bool) else str(option)
        for name, option in value.items()
    }
