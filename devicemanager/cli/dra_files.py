"""Objects of resource.k8s.io for ``devicemanager dra``: from files, an API server or a kubelet."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.files import STANDARD_INPUT, add_file, check_one_standard_input, read_file
from devicemanager.cli.options import CommandError, needs_extra
from devicemanager.io.safe_read import not_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

CONTROL = "DEVICEMANAGER_CONTROL"
"""Environment variable with the address of a mock kubelet's control API."""
_MAX_FILE = 64 << 20
"""Largest file in bytes: a node with 10,000 devices has slices of some megabytes."""
_MAX_VALUES = 5_000_000
_SUFFIXES = (".yaml", ".yml", ".json")
SERVED = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
"""Resource types of resource.k8s.io that a mock kubelet serves."""
_GROUP = "/apis/resource.k8s.io"
# The newest first, because a server can serve several versions, and older ones can lack fields.
_VERSIONS = ("v1", "v1beta2", "v1beta1")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the source of objects: files, an API server or a mock
    kubelet."""
    add_file(
        parser,
        "paths",
        "file or directory with objects in YAML or JSON; - is standard input. Without "
        "PATH, read the objects of a mock kubelet or of an API server",
        nargs="*",
        metavar="PATH",
    )
    add_served(parser)


def add_served(parser: argparse.ArgumentParser) -> None:
    """Add the options that select an API server or a mock kubelet."""
    add_file(parser, "--kubeconfig", "kubeconfig of the API server (default: as kubectl)")
    parser.add_argument(
        "--control",
        metavar="WHERE",
        help="read from a mock kubelet: the --root of `run`, its control socket, or "
        f"http://HOST:PORT (default: ${CONTROL}, unless --kubeconfig is given)",
    )
    add_file(parser, "--token-file", "control.token in that root, for http")


def objects(args: argparse.Namespace, plural: str) -> list[Object]:
    """Return all objects of a resource type, converted to ``resource.k8s.io/v1``.

    ``plural`` is the type, such as ``resourceslices``. The objects are read from the files, the
    mock kubelet or the API server that the arguments select. Raises CommandError for a mistake of
    the user, OSError for an unreadable file, and ClusterError or ApiError for an error of the API
    server.
    """
    if has_files(args):
        return _from_files(args.paths, plural)
    return [value for _, value in served_objects(args, [plural])]


def has_files(args: argparse.Namespace) -> bool:
    """True if the arguments name files from which to read objects.

    Raises CommandError if the arguments also select a mock kubelet or an API server.
    """
    for name in ("kubeconfig", "control"):
        if args.paths and getattr(args, name):
            raise CommandError(f"--{name} and files exclude each other: give one of them")
    return bool(args.paths)


def is_mock(args: argparse.Namespace) -> bool:
    """True if the arguments select a mock kubelet as the source of objects, False if they select
    an API server.

    Raises CommandError if ``--control`` and ``--kubeconfig`` are both given.
    """
    if args.control and args.kubeconfig:
        raise CommandError("--control and --kubeconfig exclude each other: give one of them")
    # --kubeconfig overrides the variable, which users also set for `devicemanager ctl`.
    return bool(args.control or (CONTROL in os.environ and not args.kubeconfig))


def served_objects(
    args: argparse.Namespace, plurals: Sequence[str]
) -> Iterator[tuple[str, Object]]:
    """Yield the objects of the resource types ``plurals``, as pairs: a text that names the source,
    and the object.

    The source is the mock kubelet or the API server that the arguments select.
    """
    if not is_mock(args):
        for plural in plurals:
            for value in _from_server(args.kubeconfig, plural):
                yield "the API server", value
        return
    with needs_extra("dra", "control"):
        from devicemanager.apiserver.kinds import KINDS
        from devicemanager.cli.ctl_client import connected

    with connected(args) as kubelet:
        for plural in plurals:
            for value in kubelet.resource_claims.objects(KINDS[plural].name):
                yield "the kubelet", value


def read_objects(paths: Sequence[str]) -> list[Object]:
    """Return all objects in files and directories. Lists are replaced by their items.

    Raises OSError for a file that cannot be read, and CommandError for an invalid file.
    """
    return [found for _, found in located_objects(paths)]


def located_objects(paths: Sequence[str]) -> Iterator[tuple[str, Object]]:
    """Yield all objects in files and directories, as pairs of file name and object. Lists are
    replaced by their items.

    Raises OSError for a file that cannot be read, and CommandError for an invalid file.
    """
    from devicemanager.apiserver.offline import listed

    check_one_standard_input(paths)
    for path in _files(paths):
        for value in _documents(path):
            for found in listed(value):
                yield path, found


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if path != STANDARD_INPUT and Path(path).is_dir():
            # Sorted, because the order of a directory depends on the file system.
            inside = sorted(each for each in Path(path).rglob("*") if each.suffix in _SUFFIXES)
            if not inside:
                raise CommandError(f"{path}: expected files that end with {', '.join(_SUFFIXES)}")
            yield from map(str, inside)
        else:
            yield path


def _documents(path: str) -> list[Any]:
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.errors import ManifestError

    try:
        text = read_file(path, _MAX_FILE).decode()
        too_large = f"larger than {_MAX_FILE} bytes: use smaller files"
        # Larger limits than for the manifest of a pod, because a file can have all slices of a node
        # with thousands of devices.
        found = load_documents(text, _MAX_FILE, _MAX_VALUES, too_large)
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: {not_utf8(error)}") from None
    except ManifestError as error:
        raise CommandError(f"{path}: {error}") from None
    return [each for value in found for each in (value if isinstance(value, list) else [value])]


def _from_files(paths: Sequence[str], plural: str) -> list[Object]:
    from devicemanager.apiserver.conversion import to_stored
    from devicemanager.apiserver.kinds import KINDS, Kinds

    wanted, kinds = KINDS[plural], Kinds()
    found, others = [], set()
    for each in read_objects(paths):
        version = str(each.get("apiVersion", ""))
        if each.get("kind") == wanted.name and version in kinds.versions(wanted):
            found.append(to_stored(wanted, version, each))
        else:
            # Other kinds are ignored, because manifests often have them too. They are an error only
            # if nothing else is found.
            others.add(f"{each.get('kind')} of {version or 'no apiVersion'}")
    if others and not found:
        names = ", ".join(sorted(others))
        raise CommandError(
            f"no {wanted.name} of resource.k8s.io in the files, only {names}: name other files"
        )
    return found


def _from_server(kubeconfig: str | None, plural: str) -> list[Object]:
    from devicemanager.apiserver.conversion import to_stored
    from devicemanager.apiserver.kinds import KINDS

    kind = KINDS[plural]
    for version in _VERSIONS:
        found = _listed(kubeconfig, f"{_GROUP}/{version}/{plural}")
        if found is not None:
            # The API server omits these two fields in the items of a list.
            head = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind.name}
            return [to_stored(kind, head["apiVersion"], {**head, **each}) for each in found]
    raise CommandError("the API server has no resource.k8s.io: it needs Kubernetes 1.32 or later")


def pods_of_server(kubeconfig: str | None) -> list[Object]:
    """Return all pods of an API server."""
    return _listed(kubeconfig, "/api/v1/pods") or []


def _listed(kubeconfig: str | None, path: str) -> list[Object] | None:
    """Return all objects of a path of an API server; None if the server does not have the path."""
    from devicemanager.client.api import ApiClient
    from devicemanager.client.credentials import load
    from devicemanager.client.errors import NotFound
    from devicemanager.client.reflector import pages

    client = ApiClient(load(None if kubeconfig is None else Path(kubeconfig)))
    try:
        return [dict(each) for page in pages(client, path) for each in page["items"]]
    # The server does not serve this version; the caller tries an older one.
    except NotFound:
        return None
    finally:
        client.close()
