"""The CDI files of a driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from devicemanager.kubelet.runtime.cdi import Registry, UnresolvedCdiDevices, load

__all__ = ["CdiDirectories"]


class CdiDirectories:
    """CDI directories in which checks search for the CDI devices of a driver.

    The stage, the driver's test node, has its own directories, to which only the driver writes. The
    driver may also write to ``/etc/cdi`` or ``/var/run/cdi``, which other programs use, too.
    """

    def __init__(self, own: Sequence[Path], seen: Iterable[Path]) -> None:
        """``own`` are the stage's directories. ``seen`` are ``/etc/cdi`` and ``/var/run/cdi``, as
        the driver's process sees them; empty if it does not run."""
        self.own = tuple(own)
        known = {each.resolve() for each in own}
        self._others = tuple(each for each in seen if each.resolve() not in known)

    def registry(self) -> Registry:
        """Return the CDI devices in all these directories, those of the stage and the others."""
        return load([*self.own, *(each for each in self._others if each.is_dir())])

    def unresolved(self, ids: Iterable[str]) -> str:
        """Return why a container runtime cannot resolve these CDI device IDs; empty if it can."""
        try:
            self.registry().resolve(list(ids))
        except UnresolvedCdiDevices as error:
            return str(error)
        return ""

    def errors(self) -> tuple[str, ...]:
        """Return the errors with which a container runtime would reject the stage's CDI files."""
        # The driver is not to blame for the files of other programs in the other directories.
        return load(self.own).errors

    def files(self) -> list[Path]:
        """Return the paths of the stage's CDI files, sorted."""
        found = [path for each in self.own for path in each.iterdir() if path.is_file()]
        # Container runtimes ignore all other files, such as temporary ones.
        return sorted(path for path in found if path.suffix in (".json", ".yaml"))

    def remove_files(self, directories: Iterable[Path] | None = None) -> None:
        """Remove all files in ``directories``, by default in all directories of the stage."""
        for each in self.own if directories is None else directories:
            for path in each.iterdir():
                path.unlink()
