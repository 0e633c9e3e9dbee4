"""Contents of a checkpoint file, as the checkpoint commands use them.

The file is the checkpoint of the device manager, or the state file of the DRA manager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from devicemanager.snapshot import Node
    from devicemanager.snapshot.names import Names
    from podresources import Pod

DEVICES = "kubelet_internal_checkpoint"
CLAIMS = "dra_manager_state"


class Fact(NamedTuple):
    """A fact in a checkpoint file, such as the devices of a container.

    ``checkpoint diff`` compares the ``text`` of facts in two files. Its JSON output has ``data``.
    """

    text: str
    data: object


Facts = Mapping[tuple[str, ...], Fact]
"""Facts of a checkpoint file. Each key says what its fact is about, such as
``("registered", "vendor.com/gpu")``."""


class Edited(NamedTuple):
    """Contents of a checkpoint file after a repair or an edit."""

    data: bytes
    contents: Contents
    problems: tuple[str, ...] = ()
    """Reasons for which a kubelet would reject the original file."""
    dropped: tuple[str, ...] = ()
    """One line for each part of the original file that was removed."""
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """True if the contents differ from the original ones."""
        # A repair removes all problems. So it also changes a file in which only the checksum is
        # wrong.
        return bool(self.problems or self.dropped)


class Contents(Protocol):
    """Readable contents of a checkpoint file, and the problems of the file."""

    format: str
    """Format of the file: ``DEVICES`` or ``CLAIMS``. The value is the name that a kubelet gives to
    a file of this format."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons for which a kubelet would reject the file, one line each."""

    @property
    def lost(self) -> tuple[str, ...]:
        """One line for each unreadable part."""

    @property
    def is_complete(self) -> bool:
        """True if everything could be read."""

    @property
    def checksums(self) -> tuple[int | None, int]:
        """The checksum in the file, and the checksum of the contents that could be read.

        The checksum in the file is None if it is missing, invalid or possibly damaged.
        """

    def is_empty(self) -> bool:
        """True if the contents have no allocations, registered resources or claims."""

    def lines(self, names: Names) -> Iterator[str]:
        """Yield the contents as lines. ``names`` has names of pods by UID; a pod without a name is
        shown by its UID."""

    def as_dict(self, names: Names) -> dict[str, Any]:
        """Return the contents as data for JSON. ``names`` has names of pods by UID."""

    def counts(self) -> dict[str, int]:
        """Return the numbers of items in the file. The keys are field names of the JSON output.

        The keys are ``pod_device_entries`` and ``registered_resources`` for the device manager, or
        ``claims`` and ``pods`` for the DRA manager.
        """

    def facts(self) -> Facts:
        """Return the facts that ``checkpoint diff`` compares, such as the devices of each container
        (see ``Facts``)."""

    def findings(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return the inconsistencies in the contents, each as a text and as data for JSON."""

    def pods(self) -> Collection[str]:
        """Return the UIDs of all pods."""

    def names_in(self, node: Node) -> Names:
        """Return the names of the pods by UID, from a snapshot of the node."""

    def names_of(self, pods: Sequence[Pod]) -> Names:
        """Return the names of the pods by UID, from a PodResources response."""

    def repaired(self) -> Edited:
        """Return the readable contents in a form that a kubelet loads."""

    def without_pods(self, uids: Collection[str]) -> Edited:
        """Return the contents after removing the pods with these UIDs."""


class Inspection(Protocol):
    """Result of ``checkpoint.inspect`` or ``checkpoint.dra.inspect``."""

    @property
    def problems(self) -> tuple[str, ...]: ...
    @property
    def lost(self) -> tuple[str, ...]: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def found(self) -> int | None: ...
    @property
    def expected(self) -> int: ...


_Inspection = TypeVar("_Inspection", bound=Inspection)


class Inspected(Generic[_Inspection]):
    """Base class of ``DeviceContents`` and ``ClaimContents``, with the properties of ``Contents``
    that do not depend on the format of the file.

    ``data`` has the bytes of the file. ``found`` is the result of ``checkpoint.inspect`` or
    ``checkpoint.dra.inspect`` for these bytes.
    """

    data: bytes
    found: _Inspection

    @property
    def problems(self) -> tuple[str, ...]:
        return self.found.problems

    @property
    def lost(self) -> tuple[str, ...]:
        return self.found.lost

    @property
    def is_complete(self) -> bool:
        return self.found.is_complete

    @property
    def checksums(self) -> tuple[int | None, int]:
        return self.found.found, self.found.expected


def counts_text(contents: Contents) -> str:
    """Return the numbers in ``Contents.counts`` as one text, such as ``2 claims, 1 pod``."""
    return ", ".join(_count_text(*each) for each in contents.counts().items())


def _count_text(plural: str, count: int) -> str:
    # The texts are made from the field names of the JSON output, so that both have the same words.
    plural = plural.replace("_", " ")
    if count != 1:
        return f"{count} {plural}"
    return f"1 {plural[:-3]}y" if plural.endswith("ies") else f"1 {plural[:-1]}"
