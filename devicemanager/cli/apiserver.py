"""``devicemanager apiserver``: run an API server for drivers and controllers under test."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.cli.files import add_directory, add_file
from devicemanager.cli.options import CommandError, add_format, add_repeated, command
from devicemanager.cli.output import clean
from devicemanager.core.api.names import is_dns1123_subdomain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devicemanager.apiserver import FakeApiServer, LoggedRequest, Request
    from devicemanager.cli.options import Subparsers

_DESCRIPTION = """\
Run an API server on loopback until SIGTERM or Ctrl-C. It stores nodes, pods and the objects of
resource.k8s.io in memory, and needs no etcd. Each request is printed as a line.
"""
_MAX_PORT = 65535
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager apiserver`` and its options."""
    parser = command(
        subparsers, "apiserver", _run, "run an API server for tests of DRA drivers", _DESCRIPTION
    )
    parser.add_argument(
        "--port", type=_port, default=0, metavar="P", help="port (default: a free one)"
    )
    add_file(parser, "--kubeconfig", "write a kubeconfig for the server")
    add_directory(
        parser,
        "--in-cluster",
        "serve TLS, and write token, ca.crt and namespace for programs that support only the "
        "in-cluster configuration; needs openssl",
    )
    parser.add_argument(
        "--namespace",
        default="default",
        help="with --in-cluster: namespace of the program (default: default)",
    )
    _add_content(parser)
    add_format(parser, "text", "json")


def _add_content(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--file", "PATH", "create the objects in a file or directory")
    add_repeated(parser, "--crd", "PATH", "serve the kinds in a CRD file, without validation")
    add_repeated(parser, "--node", "NAME", "create a Node object", type=_node)
    add_repeated(
        parser, "--hide", "VERSION", "do not serve this version, such as resource.k8s.io/v1"
    )
    add_repeated(parser, "--feature-gate", "NAME", "enable a feature gate")
    add_repeated(
        parser,
        "--fail",
        "CODE[:VERB[:RESOURCE[:TIMES]]]",
        "fail requests with a status code, such as 409:update:resourceslices:3",
        type=_failure,
    )
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="run the scheduler and the controllers of nodes, Jobs and claims",
    )
    parser.add_argument(
        "--strict-claims",
        action="store_true",
        help="with --controllers: remove reservations for pods that do not exist from every "
        "claim, as in a cluster (default: keep them in claims that you allocate)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _MAX_PORT:
        raise argparse.ArgumentTypeError(f"invalid port {text!r}: use a number up to {_MAX_PORT}")
    return int(text)


def _node(text: str) -> str:
    if not is_dns1123_subdomain(text):
        raise argparse.ArgumentTypeError(
            f"invalid node name {text!r}: use lower-case letters, digits, - and ."
        )
    return text


class _Failure(NamedTuple):
    code: int
    verb: str
    resource: str
    times: int | None

    def matches(self, request: Request) -> bool:
        """True if the fault is for this request."""
        return self.verb in ("", request.verb) and self.resource in ("", request.resource)


def _failure(text: str) -> _Failure:
    # Padded with empty parts, because only the code is required. A fifth part is an error.
    code, verb, resource, times, *rest = *text.split(":"), "", "", ""
    if not code.isdecimal() or not 400 <= int(code) < 600 or any(rest):
        raise argparse.ArgumentTypeError(
            f"invalid failure {text!r}: use CODE[:VERB[:RESOURCE[:TIMES]]] with a code from 400 "
            "to 599"
        )
    if verb and verb not in _VERBS:
        raise argparse.ArgumentTypeError(f"invalid verb {verb!r}: use one of {', '.join(_VERBS)}")
    if times and not times.isdecimal():
        raise argparse.ArgumentTypeError(f"invalid TIMES {times!r}: use a whole number")
    return _Failure(int(code), verb, resource, int(times) if times else None)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.stopping import Stopped, StopSignals

    with StopSignals() as signals, contextlib.ExitStack() as stack:
        server = _server(args)
        # Filled before the server starts, so that no client sees only a part of the objects.
        _fill(server, args)
        stack.enter_context(server)
        if args.controllers:
            from devicemanager.apiserver import Controllers

            stack.enter_context(Controllers(server, strict_claims=args.strict_claims))
        # Before the address is printed, so that no request is missed.
        requests = server.log.follow()
        _announce(server, args)
        # The loop has no end of its own: a signal raises Stopped while it waits for a request.
        with contextlib.suppress(Stopped), signals.interruptible():
            for request in requests:
                _print(args.output, request)
    return 0


def _server(args: argparse.Namespace) -> FakeApiServer:
    from devicemanager.apiserver import FakeApiServer, InCluster
    from devicemanager.cli.dra_files import read_objects

    # The server ignores unknown versions, so a misspelled one would have no effect.
    _check_versions(args.hide)
    definitions = read_objects(args.crd)
    try:
        _check_resources(args.fail, definitions)
        files = args.in_cluster and InCluster.create(Path(args.in_cluster), args.namespace)
        return FakeApiServer(
            port=args.port,
            in_cluster=files or None,
            hidden=args.hide,
            feature_gates=args.feature_gate,
            definitions=definitions,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None


def _check_versions(hidden: list[str]) -> None:
    from devicemanager.apiserver.kinds import Kinds

    table = Kinds()
    known = {version for kind in table.all() for version in table.versions(kind)}
    for each in hidden:
        if each not in known:
            raise CommandError(f"--hide: unknown version {each!r}: use {', '.join(sorted(known))}")


def _check_resources(failures: list[_Failure], definitions: Sequence[Mapping[str, Any]]) -> None:
    from devicemanager.apiserver.kinds import Kinds

    # A table of its own, because --fail can also name the kinds of --crd files.
    table = Kinds()
    for each in definitions:
        table.define(each)
    known = {kind.plural for kind in table.all()}
    for failure in failures:
        if failure.resource not in ("", *known):
            names = ", ".join(sorted(known))
            raise CommandError(f"--fail: unknown resource {failure.resource!r}: use one of {names}")


def _fill(server: FakeApiServer, args: argparse.Namespace) -> None:
    """Create the objects and faults that the options name. Raises CommandError."""
    from devicemanager.apiserver import StatusError
    from devicemanager.cli.dra_files import located_objects

    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in args.node]
    for where, each in [*(("--node", node) for node in nodes), *located_objects(args.file)]:
        try:
            server.load(each)
        except (StatusError, ValueError) as error:
            raise CommandError(f"{where}: {error}") from None
    for fault in args.fail:
        server.faults.fail(fault.code, fault.matches, times=fault.times)


def _announce(server: FakeApiServer, args: argparse.Namespace) -> None:
    # Written before the address is printed, because a script that waits for the address then reads
    # the file.
    if args.kubeconfig:
        server.kubeconfig(Path(args.kubeconfig))
    environment = server.environment if args.in_cluster else {}
    if args.output == "json":
        print(json.dumps({"url": server.url, "environment": environment}), flush=True)
        return
    print(f"serving {server.url}")
    for name, value in environment.items():
        print(f"export {name}={value}")
    # A pipe is block-buffered: without the flush, a script would wait for these lines until the
    # first request.
    print(end="", flush=True)


def _print(form: str, request: LoggedRequest) -> None:
    if form == "json":
        facts = {
            "method": request.method,
            "path": request.path,
            "code": request.code,
            "agent": request.agent,
        }
        print(json.dumps(facts), flush=True)
    else:
        print(clean(f"{request.code} {request.method} {request.path}"), flush=True)
