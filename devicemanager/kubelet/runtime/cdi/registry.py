"""Find CDI devices by name in directories of specification files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from devicemanager.core.printable import counted
from devicemanager.kubelet.runtime.cdi.files import load_spec
from devicemanager.kubelet.runtime.cdi.values import (
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    UnresolvedCdiDevices,
    parse_name,
)

__all__ = ["DEFAULT_DIRECTORIES", "Registry", "load"]

DEFAULT_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Directories of static specifications, and of specifications that are written at run time. The
latter take precedence."""


_ERRORS_SHOWN = 10


@attrs.frozen
class Registry:
    """All CDI devices of some directories, read at one moment.

    ``devices`` maps a full device name to the file that defines the device. ``errors`` has one line
    for each unreadable directory, each rejected file, and each name that two files of one directory
    define. All devices in ``devices`` can be used despite these errors.
    """

    directories: tuple[Path, ...] = ()
    devices: Mapping[str, CdiSpec] = attrs.field(factory=dict)
    errors: tuple[str, ...] = ()

    def resolve(self, names: Iterable[str]) -> tuple[tuple[str, ContainerEdits], ...]:
        """Return the edits for these device names in order, as pairs of device name and edits.

        A file can have edits for all its devices. These edits come once, before those of the first
        requested device of the file. Raises ``CdiError`` for a malformed name, and
        ``UnresolvedCdiDevices`` for unknown names.
        """
        requested = tuple(dict.fromkeys(names))
        # Before the look-up, because a malformed name has an error of its own.
        parsed = {name: parse_name(name) for name in requested}
        unknown = tuple(name for name in requested if name not in self.devices)
        # One error has all unknown names, as in a container runtime.
        if unknown:
            raise UnresolvedCdiDevices(unknown, self._where())
        edits: list[tuple[str, ContainerEdits]] = []
        # The general edits of a file apply only once, also if several of its devices are used.
        begun: set[Path] = set()
        for name, (_, device) in parsed.items():
            spec = self.devices[name]
            if spec.path not in begun:
                begun.add(spec.path)
                edits.append((name, spec.edits))
            edits.append((name, spec.devices[device]))
        return tuple(edits)

    def _where(self) -> str:
        searched = ", ".join(map(str, self.directories)) or "no directory"
        shown = self.errors[:_ERRORS_SHOWN]
        omitted = len(self.errors) - len(shown)
        more = (f"and {counted(omitted, 'more error')}",) if omitted else ()
        return "; ".join((f"searched {searched}", *shown, *more))


def load(directories: Iterable[Path] = DEFAULT_DIRECTORIES) -> Registry:
    """Read every ``.json`` and ``.yaml`` file in the directories into a registry.

    Later directories take precedence. A missing directory has no files. If two files of one
    directory define the same name, the name is ambiguous and therefore dropped, even if an earlier
    directory also defines it.
    """
    searched = tuple(directories)
    devices: dict[str, CdiSpec] = {}
    errors: list[str] = []
    for directory in searched:
        devices.update(_read(directory, devices, errors))
    return Registry(searched, devices, tuple(errors))


def _read(directory: Path, earlier: dict[str, CdiSpec], errors: list[str]) -> dict[str, CdiSpec]:
    here: dict[str, CdiSpec] = {}
    claimed: set[str] = set()
    for path in _files(directory, errors):
        try:
            spec = load_spec(path)
        except CdiSpecError as error:
            errors.append(str(error))
            continue
        for name in (f"{spec.kind}={device}" for device in spec.devices):
            # In one directory, neither file has precedence: the name is removed after the loop.
            if name in here or name in claimed:
                errors.append(f"{path}: another file in {directory} defines {name}, too")
                claimed.add(name)
            here[name] = spec
    for name in claimed:
        here.pop(name, None)
        # This directory takes precedence over earlier ones. A conflict in it must not make the
        # device of an earlier directory visible again.
        earlier.pop(name, None)
    return here


def _files(directory: Path, errors: list[str]) -> list[Path]:
    try:
        return sorted(p for p in directory.iterdir() if p.suffix in (".json", ".yaml"))
    # /etc/cdi and /var/run/cdi exist only where a driver has created them.
    except FileNotFoundError:
        return []
    except OSError as error:
        errors.append(f"{directory}: {error.strerror}")
        return []
