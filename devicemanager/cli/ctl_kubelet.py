"""The actions of ``devicemanager ctl`` on one kubelet.

The module is imported only when ``ctl`` is called, because the operations need the pip
extra ``control``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from devicemanager.claims.errors import ClaimsError
from devicemanager.cli.ctl_action import (
    LINES,
    LIST,
    ONE,
    POD_HELP,
    Action,
    Actions,
    add_where,
    argument,
    seconds,
)
from devicemanager.cli.ctl_client import connected, content, pods_named, print_line, show
from devicemanager.cli.ctl_lists import (
    FAULTS,
    claims,
    devices,
    drivers,
    plugins,
    pods,
    print_items,
    resources,
    slices,
)
from devicemanager.cli.files import check_one_standard_input
from devicemanager.cli.options import CommandError, CommandParser
from devicemanager.cli.output import clean, lines_of
from devicemanager.cli.settings_options import number
from devicemanager.control.client import MockKubeletClient
from devicemanager.control.operations import TABLE
from devicemanager.control.shapes import Admission, CallWait
from devicemanager.core.errors import RequestError
from devicemanager.core.printable import counted
from devicemanager.events.calls.matching import Mark
from devicemanager.faults.fault import Fault
from devicemanager.objects.manifests.errors import ManifestError

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.kubelet.pods.pod_info import PodInfo

__all__ = ["add", "add_where"]


class _KubeletActions(Actions):
    def pods(
        self, client: MockKubeletClient, args: argparse.Namespace
    ) -> tuple[Sequence[PodInfo], str]:
        return list(client.pods().values()), "`devicemanager ctl pods` lists all"


_WATCH: Final = argument(
    "-w", "--watch", action="store_true", help="then print changes until Ctrl-C"
)

_NOT_PREPARED = "prepare "
"""Beginning of the error of a pod whose ResourceClaims could not be prepared."""


def add(subparsers: Subparsers) -> None:
    """Add all actions on one kubelet to the parser of ``devicemanager ctl``."""
    actions = _KubeletActions(TABLE, connected)
    actions.add(
        subparsers,
        Action(
            "admit",
            "admitPod",
            help="admit pods; exit status 1 if one is rejected",
            formats=("text", "json", "yaml"),
            run=_admit,
        ),
        Action(
            "pods",
            "listPods",
            help="list pods, or show some",
            formats=LIST,
            more=[_WATCH, argument("pods", nargs="*", metavar="POD", help=POD_HELP)],
            run=pods,
        ),
        Action(
            "delete",
            "deletePodGracefully",
            help="terminate and delete pods",
            many="pod",
            left_out=("grace_period",),
            more=[
                argument(
                    "--grace-period",
                    type=seconds,
                    metavar="TIME",
                    help="time for the containers to terminate, at least 1s (default: no time)",
                )
            ],
            run=_delete,
        ),
        Action(
            "finish",
            "finishPod",
            more=[
                argument(
                    "--exit-code",
                    action="append",
                    default=[],
                    metavar="[CONTAINER=]N",
                    help="exit code of all containers or of one; can be repeated (default: 0)",
                )
            ],
            run=_finish,
        ),
        Action("resync", "resyncPod", done="pod {pod} synced"),
        Action("container-options", "getContainerOptions", formats=ONE),
        Action("start-container", "startContainer", formats=ONE),
        Action("restart-container", "restartContainer", formats=ONE),
        Action("exit-container", "exitContainer", formats=ONE),
        Action("container-statuses", "getContainerStatuses", formats=ONE),
        Action("devices", "listDevices", formats=LIST, more=[_WATCH], run=devices),
        Action("resources", "listResources", formats=LIST, more=[_WATCH], run=resources),
        Action("plugins", "listPlugins", formats=LIST, more=[_WATCH], run=plugins),
        Action("drivers", "listDrivers", formats=LIST, more=[_WATCH], run=drivers),
        Action("claims", "listResourceClaims", formats=LIST, more=[_WATCH], run=claims),
        Action("claim", "getResourceClaim", formats=ONE),
        Action("slices", "listResourceSlices", formats=LIST, more=[_WATCH], run=slices),
        Action("objects", "listDraObjects", formats=ONE),
        Action("delete-object", "deleteDraObject", done="{kind} {name} deleted"),
        Action("node", "getNode", formats=ONE),
        Action("checkpoint", "getCheckpoint", formats=ONE),
        Action("start", "startKubelet", done="kubelet started"),
        Action("stop", "stopKubelet", done="kubelet stopped"),
        Action("restart", "restartKubelet", done="kubelet restarted"),
        Action("reboot", "rebootNode", done="node rebooted"),
        Action("sources-ready", "setSourcesReady", done="the kubelet knows all pods"),
        Action(
            "apply",
            "createClaims",
            help="create or replace objects of DRA, and objects of structured claims",
            files="objects of resource.k8s.io or devmgmtproto.k8s.io, as JSON or YAML",
            run=_apply,
        ),
        Action("events", "getEvents", formats=LINES),
        Action(
            "calls",
            "getCalls",
            left_out=("bytes",),
            formats=LINES,
            more=[argument("--pending", action="store_true", help="only calls without a response")],
            run=_calls,
        ),
    )
    actions.add(
        _group(subparsers, "fault", "set, list and clear injected faults of the kubelet"),
        Action(
            "set",
            "setFault",
            help="set faults",
            left_out=("spec", "kind"),
            more=[
                argument(
                    "specs",
                    nargs="+",
                    metavar="KIND[:OPTION=VALUE,...]",
                    help="a fault, such as reject-register:code=UNAVAILABLE,times=2; an unknown "
                    "kind or option lists them all",
                )
            ],
            run=_set_faults,
        ),
        Action("list", "listFaults", formats=LIST, run=_list_faults),
        Action(
            "clear",
            "clearFaults",
            help="clear all faults, or the given ones",
            left_out=("kind",),
            more=[argument("which", nargs="*", metavar="ID|KIND", help="ID of a fault, or a kind")],
            run=_clear_faults,
        ),
    )
    actions.add(
        _group(
            subparsers,
            "wait",
            "wait for devices, an event, a call or a pod; exit status 1 after a timeout",
            metavar="WHAT",
        ),
        Action("resource", "waitForResource"),
        Action("event", "waitForEvent", positional=("kinds",), formats=LINES),
        Action(
            "call",
            "waitForCall",
            positional=("rpc",),
            left_out=("bytes",),
            formats=LINES,
            more=[
                argument(
                    "--after",
                    type=number(int, 0),
                    metavar="N",
                    help="only calls with a larger number; by default only new calls",
                )
            ],
            run=_wait_for_call,
        ),
        Action(
            "pod",
            "getPod",
            help="wait until a pod is in a phase, or deleted; exit status 1 if this cannot happen",
            more=[
                argument(
                    "--phase",
                    choices=("Pending", "Running", "Succeeded", "Failed", "Deleted"),
                    default="Running",
                    help="phase to wait for (default: Running)",
                ),
                argument(
                    "--timeout",
                    type=seconds,
                    default=10.0,
                    metavar="TIME",
                    help="time to wait, such as 30, 30s or 2m (default: 10s)",
                ),
            ],
            run=_wait_for_pod,
        ),
    )
    actions.add(
        _group(subparsers, "clock", "read and advance the clock of `run --clock manual`"),
        Action("show", "getClock", formats=ONE),
        Action("advance", "advanceClock", done="clock advanced by {seconds:g} s"),
    )


def _group(subparsers: Subparsers, name: str, help_: str, metavar: str = "ACTION") -> Subparsers:
    parser = subparsers.add_parser(name, help=help_, description=f"{help_[0].upper()}{help_[1:]}.")
    return parser.add_subparsers(metavar=metavar, required=True, parser_class=CommandParser)


# -- pods --------------------------------------------------------------------------------


def _admit(client: MockKubeletClient, args: argparse.Namespace) -> int:
    check_one_standard_input(args.files)
    # All files are checked first, so that no pod is admitted if a later file is invalid.
    bodies = [(file, content(file)) for file in args.files]
    for file, body in bodies:
        _check_manifest(file, body)
    # The exit status is 1 if any pod is rejected, and 3 if the only cause are limits of searches.
    status = 0
    for file, body in bodies:
        try:
            answer: Admission = client.ask("admitPod", query={"start": args.start}, body=body)
        except RequestError as error:
            raise CommandError(f"{file}: {error}") from error
        if not answer.admitted:
            status = 3 if answer.undecided and status != 1 else 1
        if args.output == "text":
            _print_admission(answer)
        else:
            show(answer, args.output)
    return status


def _check_manifest(file: str, body: bytes) -> None:
    """Raise CommandError if the manifest has no valid pod, or an invalid ResourceClaim."""
    from devicemanager.objects.manifests import parse
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.resource_claims import read_resource_claims

    text = body.decode()
    try:
        kinds = {each.get("kind") for each in load_documents(text) if isinstance(each, dict)}
        if "ResourceClaim" in kinds and "Pod" not in kinds:
            raise ManifestError(
                "the file has a ResourceClaim but no Pod: put both in one file, or use "
                "`devicemanager ctl apply` for the claim"
            )
        read_resource_claims(text)
        parse(text)
    except ManifestError as error:
        raise CommandError(f"{file}: {error}") from None


def _print_admission(answer: Admission) -> None:
    if not answer.admitted:
        for line in lines_of(answer.explanation_text):
            print(line)
        return
    print(clean(f"pod {answer.pod.title} admitted ({answer.pod.uid})"))
    for container, given in answer.containers.items():
        parts = [f"{resource} {','.join(ids)}" for resource, ids in given.devices.items()]
        parts += [f"claim {claim} {','.join(ids)}" for claim, ids in given.claims.items()]
        print(clean(f"  {container}: {'; '.join(parts) or 'no devices'}"))
        if given.start_error:
            print(clean(f"  {container} did not start: {given.start_error}"))
    errors = [given.start_error or "" for given in answer.containers.values()]
    if any(each.startswith(_NOT_PREPARED) for each in errors):
        pod = answer.pod.title
        print(clean(f"  run `devicemanager dra explain {pod}` to see what its claims wait for"))


def _delete(client: MockKubeletClient, args: argparse.Namespace) -> int:
    found = pods_named(client, args.pods)
    if args.grace_period is None:
        # One request deletes all pods or none. A pod can be named twice.
        client.terminate(*dict.fromkeys(pod.uid for pod in found))
    else:
        for pod in found:
            client.delete(pod.uid, args.grace_period)
    for pod in found:
        state = "deleted" if args.grace_period is None else "is being deleted"
        print(clean(f"pod {pod.title} {state}"))
    return 0


def _finish(client: MockKubeletClient, args: argparse.Namespace) -> int:
    (pod,) = pods_named(client, [args.pod])
    # The exit codes determine the phase: Succeeded or Failed.
    phase = client.finish(pod.uid, _exit_codes(args.exit_code))
    print(clean(f"pod {pod.title} {phase.value}"))
    return 0


def _exit_codes(given: list[str]) -> int | dict[str, int]:
    codes: dict[str, int] = {}
    for text in given:
        container, _, code = text.rpartition("=")
        try:
            codes[container] = int(code)
        except ValueError:
            raise CommandError(
                f"invalid --exit-code {text}: expected a number, or CONTAINER=NUMBER"
            ) from None
        # With several exit codes, it would be unclear which of them a container gets.
        if not container and len(given) > 1:
            raise CommandError(
                f"--exit-code {text} is for all containers: it must be the only --exit-code"
            )
    # A code without a container has the empty name here, and applies to all containers.
    return codes.get("", codes or 0)


# -- files and calls ---------------------------------------------------------------------


def _apply(client: MockKubeletClient, args: argparse.Namespace) -> int:
    check_one_standard_input(args.files)
    for file in args.files:
        text = content(file)
        # createClaims accepts pools, classes and claims, so one operation is enough for them.
        operation = "applyDraObjects" if b"resource.k8s.io/" in text else "createClaims"
        try:
            client.ask(operation, body=text)
        except (ClaimsError, ManifestError) as error:
            raise CommandError(f"{file}: {error}") from error
        print(clean(f"{file} applied"))
    return 0


def _calls(client: MockKubeletClient, args: argparse.Namespace) -> int:
    names = ("since", "follow", "resource", "rpc", "plugin", "code", "device_id")
    query = {name: getattr(args, name) for name in names}
    if args.pending:
        # getCalls returns only calls that have ended. Calls in flight are a separate operation,
        # which has no filters.
        if given := [f"--{name.replace('_', '-')}" for name, value in query.items() if value]:
            raise CommandError(
                f"--pending lists all calls without a response: omit {', '.join(given)}"
            )
        lines: Any = client.ask("getPendingCalls").items
    else:
        # Text output is rendered here, from the raw messages.
        lines = client.read("getCalls", {**query, "bytes": args.output == "text"})
    for line in lines:
        print_line(line, args.output)
    return 0


# -- faults ------------------------------------------------------------------------------


def _set_faults(client: MockKubeletClient, args: argparse.Namespace) -> int:
    for fault in [Fault.parse(spec) for spec in args.specs]:  # all are parsed before any is set
        state = client.faults.set(fault)
        done = "executed" if state.fault.is_immediate else "set"
        print(clean(f"fault {state.id} {done}: {state.fault}"))
    return 0


def _list_faults(client: MockKubeletClient, args: argparse.Namespace) -> int:
    print_items(FAULTS, client.ask("listFaults"), args.output)
    return 0


def _clear_faults(client: MockKubeletClient, args: argparse.Namespace) -> int:
    # IDs are numbers. Any other text is a kind, which the server checks.
    wanted = [int(text) if text.isascii() and text.isdigit() else text for text in args.which]
    count = sum(client.faults.clear(which) for which in wanted or [None])
    print(f"{counted(count, 'fault')} cleared")
    return 0


# -- waits -------------------------------------------------------------------------------

_FINAL: Final = ("Succeeded", "Failed")
"""The phases that never change: only the pod's deletion can follow."""


def _wait_for_call(client: MockKubeletClient, args: argparse.Namespace) -> int:
    timeout = CallWait().timeout if args.timeout is None else args.timeout
    body = CallWait(
        resource=args.resource,
        rpc=args.rpc,
        plugin=args.plugin,
        device_ids=args.device_ids,
        code=args.code,
        since=None if args.after is None else Mark(0, args.after),
        bytes=args.output == "text",
        timeout=timeout,
    )
    # The time of the wait is added to the client's own timeout. Otherwise the client could give up
    # before the kubelet.
    print_line(client.ask("waitForCall", body=body, timeout=timeout), args.output)
    return 0


def _wait_for_pod(client: MockKubeletClient, args: argparse.Namespace) -> int:
    def phase() -> str:
        # A deleted pod is no longer listed.
        try:
            (found,) = pods_named(client, [args.pod])
        except CommandError:
            return "Deleted"
        return found.phase.value

    if args.phase != "Deleted":
        pods_named(client, [args.pod])  # raises CommandError for a wrong name before the wait
    # A pod never leaves a final phase, so a wait for any other phase ends there. A wait for the
    # deletion continues, because a pod in a final phase can still be deleted.
    ends, found = {args.phase, "Deleted", *(_FINAL if args.phase != "Deleted" else ())}, ""

    def is_over() -> bool:
        nonlocal found
        found = phase()
        return found in ends

    # A phase changes only with an event, so the wait checks after events.
    client.wait_for(is_over, args.timeout, f"pod {args.pod} to be {args.phase}")
    if found == args.phase:
        return 0
    text = f"pod {args.pod} is {found}: it cannot become {args.phase} any more"
    print(clean(text), file=sys.stderr)
    return 1
