"""Pack files into the archive of a snapshot, or of a whole cluster (``devicemanager.fleet``), and
unpack them.

The archive is a gzip-compressed tar.

Archives are untrusted, so unpacking must be safe:

* Nothing is unpacked to disk, so names and links cannot lead to other directories.
* Only headers of regular files and of directories are accepted: no links, devices or extension
  headers.
* Decompression stops at a limit, so a small archive cannot fill the memory.
* The size in each header is compared with the size of the remaining data.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Self

import attrs

from devicemanager.snapshot import layout
from devicemanager.snapshot.model import SnapshotError

__all__ = ["Form", "is_packed", "pack", "unpack"]

_BLOCK: Final = tarfile.BLOCKSIZE
_MAGIC: Final = b"\x1f\x8b"
_REGULAR: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
_MODE: Final = 0o600


@attrs.frozen
class Form:
    """Names and limits of one kind of archive. Sizes are in bytes."""

    what: str
    """Name of this kind of archive in errors, with an article, such as ``a snapshot``."""
    directory: str
    """Directory in the archive that contains all files."""
    index: str
    """Name of the file that every archive has."""
    max_file: int
    max_unpacked: int
    max_members: int

    @classmethod
    def snapshot(cls) -> Self:
        """Return the names and limits of a snapshot archive (``layout``)."""
        return cls(
            "a snapshot",
            layout.DIRECTORY,
            layout.INDEX,
            layout.MAX_FILE,
            layout.MAX_UNPACKED,
            layout.MAX_MEMBERS,
        )


def is_packed(data: bytes) -> bool:
    """True if the data may be a snapshot archive: it starts like a gzip file. A checkpoint never
    starts like this."""
    return data.startswith(_MAGIC)


def pack(files: Mapping[str, bytes], modified: int, form: Form | None = None) -> bytes:
    """Return an archive of ``files``, which maps file names to contents.

    ``form`` is the kind of archive; None means a snapshot. ``modified`` is the time of all files in
    seconds since the epoch. Equal arguments lead to equal bytes.
    """
    directory = (form or Form.snapshot()).directory
    # Fixed mode and time make archives comparable and hide the user who took the snapshot.
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{directory}/{name}")
            member.size, member.mode, member.mtime = len(data), _MODE, modified
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(tar.getvalue(), mtime=modified)


def unpack(data: bytes, source: str, form: Form | None = None) -> dict[str, bytes]:
    """Return the files of an archive, as a mapping from file names to contents.

    ``form`` is the kind of archive; None means a snapshot. ``source`` is the archive's name in
    errors. Raises SnapshotError for an invalid archive.
    """
    form = form or Form.snapshot()
    files: dict[str, bytes] = {}
    for name, content in _members(_inflated(data, source, form), source, form):
        # With two files of one name, another tool could show other contents than this one.
        if name in files:
            raise SnapshotError(f"{source}: not {form.what}: duplicate file {name}")
        files[name] = content
    if form.index not in files:
        raise SnapshotError(f"{source}: not {form.what}: {form.index} is missing")
    return files


def _inflated(data: bytes, source: str, form: Form) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            # Read one byte more than allowed, to detect a larger archive without reading all of it.
            tar = stream.read(form.max_unpacked + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SnapshotError(
            f"{source}: not {form.what}, or damaged: it cannot be decompressed ({error})"
        ) from None
    if len(tar) > form.max_unpacked:
        raise SnapshotError(
            f"{source}: not {form.what}: decompressed size exceeds {form.max_unpacked} bytes"
        )
    return tar


def _members(tar: bytes, source: str, form: Form) -> Iterator[tuple[str, bytes]]:
    # Parsed without the loop of tarfile: it would seek, follow extension headers and accept damaged
    # ones.
    position = count = 0
    # A block of zeros ends a tar archive.
    while position + _BLOCK <= len(tar) and any(tar[position : position + _BLOCK]):
        count += 1
        # A member can be as small as one block, so the limit of the size alone would allow too
        # many.
        if count > form.max_members:
            raise SnapshotError(f"{source}: not {form.what}: more than {form.max_members} files")
        member = _member(tar[position : position + _BLOCK], source, form)
        start = position + _BLOCK
        # A size in base-256 encoding can be negative or huge.
        if not 0 <= member.size <= len(tar) - start:
            raise SnapshotError(f"{source}: damaged: the contents of {member.name!r} are truncated")
        if member.type in _REGULAR and member.size <= form.max_file:
            yield _name(member, source, form), tar[start : start + member.size]
        elif member.type in _REGULAR:
            raise SnapshotError(
                f"{source}: not {form.what}: {member.name!r} has more than {form.max_file} bytes"
            )
        elif member.type != tarfile.DIRTYPE or member.size:
            raise SnapshotError(f"{source}: not {form.what}: {member.name!r} is not a regular file")
        # Contents are padded to whole blocks, so round the size up.
        position = start + -(-member.size // _BLOCK) * _BLOCK


def _member(header: bytes, source: str, form: Form) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise SnapshotError(
            f"{source}: not {form.what}: compressed, but not a tar archive ({error}); if "
            "it is a checkpoint, decompress it first"
        ) from None


def _name(member: tarfile.TarInfo, source: str, form: Form) -> str:
    # `tar` writes a leading `./` if a user packs the archive again and gives it such a path.
    pattern = rf"(?:\./)?{form.directory}/([A-Za-z0-9_][A-Za-z0-9_.-]{{0,63}})"
    match = re.fullmatch(pattern, member.name)
    if match is None:
        raise SnapshotError(f"{source}: not {form.what}: unexpected file {member.name!r}")
    return match[1]
