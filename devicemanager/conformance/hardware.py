"""Hardware that the plugin discovers: the hardware of this machine, or what the user declares.

The user declares NUMA nodes with the option ``--numa``, and directories with ``--dev``, ``--sys``
and ``--cdi``.
"""

from __future__ import annotations

import posixpath
from pathlib import Path, PurePosixPath

import attrs

from devicemanager.conformance.outcomes import CheckError
from devicemanager.core.topology import NumaTopology
from devicemanager.kubelet.host.numa import NumaError, from_host, online_nodes

__all__ = ["Hardware"]

_REPLACED = {"dev": ("/dev",), "sys": ("/sys",), "cdi": ("/etc/cdi", "/var/run/cdi", "/run/cdi")}
"""Directories of this machine that a declared directory replaces, by field of ``Hardware``."""

_NO_HARDWARE = (
    "/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm", "/sys/fs", "/sys/kernel",
)  # fmt: skip
"""Directories below ``/dev`` and ``/sys`` that have no hardware. Declared directories usually lack
them."""


def _as_directory(path: Path | str | None) -> Path | None:
    if path is None:
        return None
    # Resolved, because the mounts can hide parts of the path.
    resolved = Path(path).resolve()
    if not resolved.is_dir():
        raise CheckError(f"{path} is not a directory: use an existing directory")
    return resolved


@attrs.frozen(kw_only=True)
class Hardware:
    """Hardware that the user declares in place of the hardware of this machine.

    Checks search this hardware for the NUMA nodes, paths and CDI devices that the plugin names:

    * If a NUMA node or path is missing in the declared hardware, a check fails.
    * If a CDI device is missing in the declared directory, a check warns.
    * If the user has declared no NUMA nodes, or no directory for a path, checks search this
      machine. If the NUMA node or path is missing there, a check only warns.

    If the user has declared a directory, the plugin runs in a private mount namespace. There, the
    declared directory replaces the machine's directory. Raises CheckError if a declared path is not
    a directory.
    """

    numa: NumaTopology | None = None
    """The NUMA nodes that the user has declared with ``--numa``; None without this option. Then
    checks read the NUMA nodes in ``sys``, or those of this machine if ``sys`` is None, too."""
    dev: Path | None = attrs.field(default=None, converter=_as_directory)
    """Directory that the plugin sees as ``/dev``; None for this machine's ``/dev``. It may contain
    regular files in place of device nodes."""
    sys: Path | None = attrs.field(default=None, converter=_as_directory)
    """Directory that the plugin sees as ``/sys``; None for this machine's ``/sys``."""
    cdi: Path | None = attrs.field(default=None, converter=_as_directory)
    """Directory that the plugin sees as ``/etc/cdi`` and ``/var/run/cdi``; None for those of this
    machine."""

    @property
    def has_directories(self) -> bool:
        """True if the user has declared at least one directory: ``dev``, ``sys`` or ``cdi``."""
        return bool(self.declared)

    @property
    def declared(self) -> list[str]:
        """The declared directories, each with its option, such as ``/tmp/dev (--dev)``."""
        options = {"--dev": self.dev, "--sys": self.sys, "--cdi": self.cdi}
        return [f"{path} ({option})" for option, path in options.items() if path is not None]

    def in_place_of(self, path: str) -> tuple[str, Path | None]:
        """Return a pair for ``path``: the option that can replace its directory, and the directory
        that the user has declared with this option.

        For ``/dev/gpu0``, the pair is ``("dev", Path("/tmp/dev"))`` with ``--dev /tmp/dev``, and
        ``("dev", None)`` without this option. If no option applies to a path, the pair is
        ``("", None)``.
        """
        # Links are not resolved, because the path may not exist on this machine.
        place = PurePosixPath(posixpath.normpath(path))
        if any(place.is_relative_to(each) for each in _NO_HARDWARE):
            return "", None
        for option, directories in _REPLACED.items():
            if any(place.is_relative_to(each) for each in directories):
                directory: Path | None = getattr(self, option)
                return option, directory
        return "", None

    @property
    def declares_numa(self) -> bool:
        """True if the user has declared NUMA nodes, with ``numa`` or ``sys``. If False,
        ``numa_nodes`` returns those of this machine."""
        return self.numa is not None or self.sys is not None

    def numa_nodes(self) -> set[int]:
        """Return the IDs of the declared NUMA nodes, or of this machine's if none are declared.

        Raises CheckError if ``numa`` is None and the directory ``sys`` has no valid list of NUMA
        nodes. Raises RequestError if this machine's sysfs cannot be read.
        """
        if self.numa is not None:
            return set(self.numa.nodes)
        if self.sys is None:
            return set(from_host().topology.nodes)
        try:
            return set(online_nodes(self.sys))
        except NumaError as error:
            raise CheckError(
                f"--sys: {error}: write NUMA nodes such as 0-1 into this file, or use --numa "
                "0,1 (if the program is a DRA driver, use --driver)"
            ) from error

    def check(self) -> None:
        """Raise CheckError if a file in ``cdi`` is invalid. Also raise it if ``numa`` is None and
        the directory ``sys`` has no valid list of NUMA nodes."""
        from devicemanager.kubelet.runtime.cdi import load  # it imports the YAML parser

        if self.declares_numa:
            self.numa_nodes()
        if self.cdi is not None and (errors := load((self.cdi,)).errors):
            raise CheckError(f"--cdi: {errors[0]}: correct this file or remove it")
