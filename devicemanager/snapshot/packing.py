"""The archive: a few plain files in a tar, compressed.

It comes from anybody. So nothing is ever unpacked to a disk, only the plainest headers are
understood (a file, or the directory itself), every size is bounded before anything is read,
and what is compressed may not grow without end.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

from devicemanager.snapshot import layout
from devicemanager.snapshot.errors import SnapshotError

__all__ = ["is_packed", "pack", "unpack"]

_BLOCK: Final = tarfile.BLOCKSIZE
_MAGIC: Final = b"\x1f\x8b"
_NAME: Final = re.compile(rf"(?:\./)?{layout.DIRECTORY}/([A-Za-z0-9_][A-Za-z0-9_.-]{{0,63}})")
_PLAIN: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
_MODE: Final = 0o600


def is_packed(data: bytes) -> bool:
    """Whether ``data`` may be an archive of ours; no checkpoint begins so."""
    return data.startswith(_MAGIC)


def pack(files: Mapping[str, bytes], modified: int) -> bytes:
    """An archive of files by name. The same files and time make the same bytes."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{layout.DIRECTORY}/{name}")
            member.size, member.mode, member.mtime = len(data), _MODE, modified
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(tar.getvalue(), mtime=modified)


def unpack(data: bytes, source: str) -> dict[str, bytes]:
    """The archive's files by name; ``source`` names it in errors. Raises SnapshotError."""
    files: dict[str, bytes] = {}
    for name, content in _members(_inflated(data, source), source):
        if name in files:
            raise SnapshotError(f"{source}: this is no snapshot: {name} is in it twice")
        files[name] = content
    if layout.INDEX not in files:
        raise SnapshotError(f"{source}: this is no snapshot: there is no {layout.INDEX} in it")
    return files


def _inflated(data: bytes, source: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            tar = stream.read(layout.MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SnapshotError(
            f"{source}: this is no snapshot, or it is damaged: it cannot be unpacked ({error})"
        ) from None
    if len(tar) > layout.MAX_UNPACKED:
        raise SnapshotError(f"{source}: unpacked it has more than {layout.MAX_UNPACKED} bytes")
    return tar


def _members(tar: bytes, source: str) -> Iterator[tuple[str, bytes]]:
    position = count = 0
    while position + _BLOCK <= len(tar) and any(tar[position : position + _BLOCK]):
        count += 1
        if count > layout.MAX_MEMBERS:
            raise SnapshotError(f"{source}: it has more than {layout.MAX_MEMBERS} files")
        member = _member(tar[position : position + _BLOCK], source)
        start = position + _BLOCK
        if not 0 <= member.size <= len(tar) - start:
            raise SnapshotError(f"{source}: {member.name!r} in it is cut off")
        if member.type in _PLAIN and member.size <= layout.MAX_FILE:
            yield _name(member, source), tar[start : start + member.size]
        elif member.type in _PLAIN:
            raise SnapshotError(f"{source}: {member.name!r} in it is larger than any part may be")
        elif member.type != tarfile.DIRTYPE or member.size:
            raise SnapshotError(f"{source}: {member.name!r} in it is no plain file")
        position = start + -(-member.size // _BLOCK) * _BLOCK


def _member(header: bytes, source: str) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise SnapshotError(
            f"{source}: this is no snapshot: what is compressed in it is no tar ({error}); "
            "decompress it if it is another file"
        ) from None


def _name(member: tarfile.TarInfo, source: str) -> str:
    match = _NAME.fullmatch(member.name)
    if match is None:
        raise SnapshotError(f"{source}: this is no snapshot: {member.name!r} is no part of one")
    return match[1]
