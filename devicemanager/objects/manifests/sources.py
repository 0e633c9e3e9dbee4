"""Sources of manifests: files, text, and objects of the package ``kubernetes``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from devicemanager.io.safe_read import NotRegular, TooLarge, not_utf8, read_regular
from devicemanager.objects.manifests.documents import MAX_SIZE, TOO_LARGE
from devicemanager.objects.manifests.errors import ManifestError, plain, shown

_SUFFIXES = (".yaml", ".yml", ".json")


def path_in(text: str) -> Path | None:
    """Return ``text`` as a path; None if ``text`` is a manifest.

    Raises ManifestError if ``text`` is neither.
    """
    if "\n" in text or text.lstrip().startswith("{"):
        return None
    try:
        exists = Path(text).is_file()
    # For example, a manifest on one line can be longer than a file name may be.
    except OSError:
        exists = False
    if exists or text.endswith(_SUFFIXES):
        return Path(text)
    # A one-line manifest needs a colon; without a colon, a mistyped path is more likely.
    if ":" not in text:
        raise ManifestError(
            f"{shown(text)} is neither an existing file nor a manifest: check the path"
        )
    return None


def text_of(source: str | Path) -> str:
    """Return the text of a manifest. ``source`` is this text, or the path of a file with this text.

    A string can be either. Raises ManifestError if the file cannot be read. The error
    names the file.
    """
    path = path_in(source) if isinstance(source, str) else source
    if path is None:
        return str(source)
    try:
        return read(path)
    except ManifestError as error:
        raise ManifestError(f"{plain(str(path))}: {error}") from None


def read(path: Path) -> str:
    """Return the text of a file. Raises ManifestError, which does not name the file, on failure."""
    try:
        data = read_regular(path, MAX_SIZE)
    except NotRegular as error:
        raise ManifestError(str(error)) from None
    except TooLarge:
        raise ManifestError(TOO_LARGE) from None
    except (FileNotFoundError, ValueError):  # ValueError: a name with a null character
        raise ManifestError("No such file or directory") from None
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}") from None
    try:
        # This codec also drops the byte order mark that some editors write.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{not_utf8(error)}: save the file as UTF-8") from None


@lru_cache(maxsize=1)
def _sanitizer() -> Any:
    # Imported only when it is needed, because the import takes a quarter of a second.
    from kubernetes.client import ApiClient

    return ApiClient()


def client_object(source: object) -> Mapping[str, Any]:
    """Convert an object of the Python package ``kubernetes`` to a mapping of JSON values.

    The mapping has ``kind`` and ``apiVersion`` only if the object has them.

    Raises ManifestError if the object cannot be converted.
    """
    try:
        found = _sanitizer().sanitize_for_serialization(source)
    # The client raises many types of errors for objects with invalid content.
    except Exception as error:
        raise ManifestError(
            f"cannot convert {type(source).__name__} to a manifest: {error}"
        ) from None
    if not isinstance(found, Mapping):
        raise ManifestError(f"{type(source).__name__} is not an object of the Kubernetes API")
    return found
