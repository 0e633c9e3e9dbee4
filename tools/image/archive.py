"""Archive of an image."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tools.image.recipe import Recipe

_EPOCH: Final = "1970-01-01T00:00:00Z"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of architectures in images, if they differ from those of the kernel."""


def write(archive: Path, root: Path, recipe: Recipe, tag: str) -> None:
    """Write an image with the files in the directory ``root``.

    The format is that of ``docker save`` before Docker 25: ``docker load``, ``podman load``, ``ctr
    images import`` and ``kind load image-archive`` read it. Docker before 25 cannot read the newer
    format, an OCI image layout.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        layer = Path(scratch) / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            for path in sorted(root.rglob("*")):
                tar.add(path, str(path.relative_to(root)), recursive=False, filter=_normal)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        config = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": _EPOCH,
            "config": {
                "User": recipe.user,
                "Env": recipe.environment,
                "Entrypoint": recipe.entry_point,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": _EPOCH, "created_by": "python -m tools.image"}],
        }
        text = json.dumps(config).encode()
        name = f"{hashlib.sha256(text).hexdigest()}.json"
        manifest = [{"Config": name, "Layers": [f"{digest}.tar"], "RepoTags": [tag]}]
        whole = Path(scratch) / "archive.tar"
        with tarfile.open(whole, "w") as tar:
            _add(tar, name, text)
            tar.add(layer, f"{digest}.tar", filter=_normal)
            _add(tar, "manifest.json", json.dumps(manifest).encode())
        # An interrupted build leaves no partial archive.
        whole.replace(archive)


def _normal(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove what differs between two builds, or between two machines."""
    executable = info.isdir() or info.issym() or info.mode & 0o100
    info.mode = 0o1777 if info.name == "tmp" else 0o755 if executable else 0o644
    info.mtime = info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def unpack(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack the files of an image into a directory, and return its configuration."""
    with tarfile.open(archive) as tar:
        (names,) = json.loads(_read(tar, "manifest.json"))
        (layer,) = names["Layers"]
        with tarfile.open(fileobj=tar.extractfile(layer)) as files:
            # Without a filter, some versions of Python print a warning.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(root)
        config: dict[str, Any] = json.loads(_read(tar, names["Config"]))
    return config


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()
