"""The archive: snapshots survive a round trip, and other files do no harm."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import tracemalloc

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.snapshot import SnapshotError, archive, layout, read_snapshot
from devicemanager.snapshot.model import (
    KubeletConfig,
    Listening,
    PodDirectories,
    Snapshot,
    SocketSeen,
)
from devicemanager.snapshot.packing import pack, unpack
from podresources import Allocatable, Container, ContainerDevices, Pod
from podresources.values import ClaimResource, ContainerMemory, DynamicResource
from tests.paths import ROOT
from tests.snapshot import made_up
from tests.snapshot.made_up import WHOLE

PAGE = ROOT / "docs/snapshot.md"
INDEX = {"schema": layout.SCHEMA, "taken": "t", "tool": "0", "node": "n", "root": "/r"}


MEMORY = (ContainerMemory("memory", 4 << 30, (0, 1)), ContainerMemory("hugepages-2Mi", 4096))
CLAIM = DynamicResource("c", "ml", (ClaimResource("d", "p", "x", ("v.com/c=1",), "share"),))
RICH = attrs.evolve(
    WHOLE,
    pods=(
        Pod(
            "p",
            "ml",
            (
                Container(
                    "main", (ContainerDevices("v.com/x", ("1",), (0, 1)),), (1, 2), MEMORY, (CLAIM,)
                ),
            ),
            (3,),
            MEMORY[:1],
        ),
    ),
    allocatable=Allocatable((ContainerDevices("v.com/x", ("1", "2")),), (0, 5), MEMORY),
    sockets=(SocketSeen("/s", Listening.UNKNOWN, problem="No access"),),
    config=KubeletConfig(None, {"reservedSystemCPUs": 0}, {"config": "/c"}, 12),
    directories=PodDirectories(None, ()),
)


def test_text_of_an_error_is_one_printable_line():
    assert str(SnapshotError("  a\n b\t\x1b[2J\r\n\u202ec  ")) == "a b \\x1b[2J \\u202ec"


@pytest.mark.parametrize("snapshot", [WHOLE, RICH], ids=["whole", "rich"])
def test_snapshot_survives_a_round_trip(snapshot):
    data = archive(snapshot)
    assert read_snapshot(data) == snapshot
    assert archive(read_snapshot(data)) == data


def test_archive_has_exactly_the_documented_files():
    with tarfile.open(fileobj=io.BytesIO(archive(WHOLE))) as whole:
        found = whole.getnames()
        assert {(each.mode, each.mtime) for each in whole} == {(0o600, 1_769_860_800)}
    section = PAGE.read_text().partition("## Archive format")[2]
    described, _, _ = section.partition("Archives are never unpacked")
    columns = [row.split("|")[1] for row in described.splitlines() if row.startswith("| `")]
    names = [name for column in columns for name in re.findall(r"`([^`]+)`", column)]
    assert sorted(found) == sorted(f"snapshot/{name}" for name in names)
    assert f"`{layout.SCHEMA}`" in described


def test_archive_has_no_files_of_unread_parts():
    bare = Snapshot(made_up.TAKEN, "0", "n", "/r", made_up.PARTS)
    assert read_snapshot(archive(bare)) == bare
    for name in (layout.POD_RESOURCES, layout.CHECKPOINT, layout.SOCKETS, layout.PODS):
        some = made_up.without(WHOLE, name, "no permission")
        assert read_snapshot(archive(some)) == some


def test_archive_repacked_with_tar_is_readable():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        directory = tarfile.TarInfo("./snapshot/")
        directory.type = tarfile.DIRTYPE
        tar.addfile(directory)
        for name, data in unpack(archive(WHOLE), "s").items():
            member = tarfile.TarInfo(f"./snapshot/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert read_snapshot(out.getvalue()) == WHOLE


def test_archive_may_end_with_the_header_of_an_empty_file():
    tar = gzip.decompress(pack({layout.INDEX: b"{}", "empty": b""}, 0))
    assert set(unpack(gzip.compress(tar[: 3 * 512]), "s")) == {layout.INDEX, "empty"}


@pytest.mark.parametrize("size", [512, 513, 1024])
def test_contents_of_a_file_must_be_complete(size):
    tar = gzip.decompress(pack({layout.INDEX: b"x" * size}, 0))
    end = 512 + size
    assert unpack(gzip.compress(tar[:end]), "s") == {layout.INDEX: b"x" * size}
    text = r"^s: damaged: the contents of 'snapshot/snapshot\.json' are truncated$"
    with pytest.raises(SnapshotError, match=text):
        unpack(gzip.compress(tar[: end - 1]), "s")


def test_negative_size_of_a_file_is_damage():
    tar = bytearray(gzip.decompress(pack({layout.INDEX: b"{}"}, 0)))
    tar[124:136] = b"\xff" * 12  # -1 in base 256
    header = tar[:148] + b" " * 8 + tar[156:512]
    tar[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(SnapshotError, match=r"^s: damaged: the contents of .* are truncated$"):
        unpack(gzip.compress(bytes(tar)), "s")


def test_unknown_files_and_fields_are_ignored():
    files = unpack(archive(WHOLE), "s") | {"later.json": b"?"}
    index = json.loads(files[layout.INDEX]) | {"later": [1]}
    files[layout.INDEX] = json.dumps(index).encode()
    assert read_snapshot(pack(files, 0)) == WHOLE


@pytest.mark.parametrize("schema", ["devicemanager.snapshot/v2", "other", "", "x" * 81])
def test_unknown_schema_is_rejected(schema):
    data = pack({layout.INDEX: json.dumps(INDEX | {"schema": schema}).encode()}, 0)
    text = f"x: unknown schema {schema[:80]!r}: this version of devicemanager reads {layout.SCHEMA}"
    with pytest.raises(SnapshotError, match=f"^{re.escape(text)}"):
        read_snapshot(data, "x")


# --- hostile archives


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return gzip.compress(out.getvalue())


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


GOOD = member("snapshot/snapshot.json", json.dumps(INDEX).encode())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (tar_of(GOOD, member("../../etc/passwd", b"x")), "unexpected file '../../etc/passwd'"),
        (tar_of(GOOD, member("snapshot/../x", b"x")), "unexpected file"),
        (tar_of(GOOD, member("/etc/passwd", b"x")), "unexpected file"),
        (tar_of(GOOD, member("snapshot/a/b", b"x")), "unexpected file"),
        (tar_of(GOOD, member("snapshot/.x", b"x")), "unexpected file"),
        (tar_of(GOOD, member("snapshot/x\n\x1b[31m", b"x")), "unexpected file"),
        (
            tar_of(GOOD, member("snapshot/numa.json", type=tarfile.SYMTYPE, linkname="/etc/x")),
            "'snapshot/numa.json' is not a regular file",
        ),
        (
            tar_of(GOOD, member("snapshot/numa.json", type=tarfile.LNKTYPE, linkname="/etc/x")),
            "is not a regular file",
        ),
        (tar_of(GOOD, member("snapshot/x", type=tarfile.FIFOTYPE)), "is not a regular file"),
        (tar_of(GOOD, member("snapshot/x", type=tarfile.CHRTYPE)), "is not a regular file"),
        (tar_of(GOOD, member("snapshot/" + "x" * 200, b"")), "is not a regular file"),
        (
            tar_of(GOOD, member("snapshot/\u00e9" * 30, b""), form=tarfile.PAX_FORMAT),
            "is not a regular file",
        ),
        (tar_of(GOOD, GOOD), "duplicate file snapshot.json"),
        (tar_of(member("snapshot/numa.json", b"{}")), "snapshot.json is missing"),
        (tar_of(), "snapshot.json is missing"),
        (tar_of(*(member(f"snapshot/f{n}") for n in range(70))), "more than 64 files"),
        (gzip.compress(b"x" * 2000), "not a snapshot"),
        (b"", "snapshot.json is missing"),
        (b"{}", "it cannot be decompressed"),
        (b"\x1f\x8b", "it cannot be decompressed"),
        (archive(WHOLE)[:-40], "it cannot be decompressed"),
        (archive(WHOLE)[:400] + b"\0" * 50 + archive(WHOLE)[450:], "it cannot be decompressed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",
)
def test_hostile_archive_is_a_one_line_error(data, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SnapshotError) as raised:
        read_snapshot(data, "bad.tar.gz")
    text = str(raised.value)
    assert text.startswith("bad.tar.gz: ")
    assert problem in text
    assert text.isprintable()
    assert not list(tmp_path.iterdir())


def test_decompression_stops_at_the_limit(monkeypatch):
    monkeypatch.setattr(layout, "MAX_UNPACKED", 1 << 20)
    bomb = gzip.compress(b"\0" * (16 << 20), compresslevel=1)
    tracemalloc.start()
    with pytest.raises(
        SnapshotError, match=r"^snapshot: not a snapshot: decompressed size exceeds"
    ):
        read_snapshot(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


def test_archive_may_have_the_largest_size(monkeypatch):
    data = archive(WHOLE)
    size = len(gzip.decompress(data))
    monkeypatch.setattr(layout, "MAX_UNPACKED", size)
    assert read_snapshot(data) == WHOLE
    monkeypatch.setattr(layout, "MAX_UNPACKED", size - 1)
    with pytest.raises(SnapshotError, match=f"decompressed size exceeds {size - 1} bytes$"):
        read_snapshot(data)


def test_number_of_files_is_limited():
    index = {layout.INDEX: b"{}"}
    most = index | {f"f{number}": b"" for number in range(63)}
    assert len(unpack(pack(most, 0), "s")) == layout.MAX_MEMBERS
    with pytest.raises(SnapshotError, match=r"^s: not a snapshot: more than 64 files"):
        unpack(pack(most | {"one-more": b""}, 0), "s")


def test_size_of_each_file_is_limited(monkeypatch):
    monkeypatch.setattr(layout, "MAX_FILE", 1000)
    files = {layout.INDEX: b"{}", "big": bytes(1000)}
    assert unpack(pack(files, 0), "s") == files
    with pytest.raises(SnapshotError) as caught:
        unpack(pack({**files, "big": bytes(1001)}, 0), "s")
    name = f"{layout.DIRECTORY}/big"
    assert str(caught.value) == f"s: not a snapshot: {name!r} has more than 1000 bytes"


def test_limits_are_documented():
    text = PAGE.read_text()
    assert f"at most {layout.MAX_MEMBERS} regular files" in text
    assert f"at most {layout.MAX_FILE >> 20} MiB each and {layout.MAX_UNPACKED >> 20} MiB" in text


def header(name: bytes, size: bytes) -> bytes:
    """Return a tar header with this size field."""
    data = bytearray(512)
    data[:100] = name.ljust(100, b"\0")
    data[100:108], data[108:116], data[116:124] = b"0000600\0", b"0000000\0", b"0000000\0"
    data[124:136] = size.ljust(12, b"\0")
    data[136:148], data[156:157], data[257:265] = b"00000000000\0", b"0", b"ustar\x0000"
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data)


@pytest.mark.parametrize("size", [b"77777777777", b"\x80" + b"\xff" * 11, b"\xff" * 12])
def test_size_in_a_header_is_not_trusted(size):
    data = gzip.compress(header(b"snapshot/x", size) + b"\0" * 1024)
    with pytest.raises(SnapshotError, match=r"are truncated|not a snapshot"):
        read_snapshot(data)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (layout.POD_RESOURCES, b"{"),
        (layout.POD_RESOURCES, b'{"pod_resources": 5}'),
        (layout.POD_RESOURCES, b'{"pod_resources": [{"name": 1, "namespace": "x"}]}'),
        (layout.POD_RESOURCES, b"[" * 200_000),
        (layout.ALLOCATABLE, b'{"devices": [{"resource_name": "x", "device_ids": [1]}]}'),
        (layout.ALLOCATABLE, b'{"cpu_ids": [1.5]}'),
        (layout.SOCKETS, b'{"sockets": [{"path": "x", "state": "perhaps"}]}'),
        (layout.NUMA, b'{"nodes": [-1]}'),
        (layout.NUMA, b'{"nodes": [0], "memory": {"memory": {"0": "many"}}}'),
        (layout.NUMA, b"\xff"),
        (layout.NUMA, b"[" * 200_000),
        (layout.NUMA, b'{"nodes": "0-99999999"}'),
        (layout.NUMA, b'{"nodes": "' + b"0-65535," * 5000 + b'"}'),
        (layout.CONFIG, b'{"flags": {"a": 1}}'),
        (layout.PODS, b'{"uids": "x"}'),
        (layout.INDEX, json.dumps(INDEX | {"parts": [5]}).encode()),
        (layout.INDEX, b'{"schema": "devicemanager.snapshot/v1"}'),
        (layout.INDEX, b"\xff\xfe"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_wrong_types_are_a_one_line_error(name, content):
    files = unpack(archive(WHOLE), "s") | {name: content}
    with pytest.raises(SnapshotError) as raised:
        read_snapshot(pack(files, 0), "bad")
    assert str(raised.value).startswith("bad: ")
    assert "\n" not in str(raised.value)


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=30))
def test_damaged_archive_is_read_or_a_one_line_error(position, noise):
    tar = gzip.decompress(archive(WHOLE))
    damaged = gzip.compress(tar[:position] + noise + tar[position + len(noise) :], 1)
    try:
        assert isinstance(read_snapshot(damaged), Snapshot)
    except SnapshotError as error:
        assert str(error).isprintable()


def test_untrusted_texts_survive_a_round_trip():
    evil = "\x1b[31m\u202e<b>\x00"
    one = attrs.evolve(WHOLE, pods=(made_up.pod(evil, "g0"),), node=evil)
    assert read_snapshot(archive(one)) == one
