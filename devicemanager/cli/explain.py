"""``devicemanager explain``: why a pod would get its devices, or be rejected."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.cli import claims_options, device_option, settings_options
from devicemanager.cli.explain_nodes import papers
from devicemanager.cli.files import check_one_standard_input, file_name, read_standard_input
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.cli.output import clean, failures, print_json

if TYPE_CHECKING:
    from checkpoint import Checkpoint
    from devicemanager.claims.explanation import Explanation
    from devicemanager.cli.offline_claims import OfflineClaims
    from devicemanager.cli.offline_node import Inventory, OfflineNode
    from devicemanager.cli.options import Subparsers
    from devicemanager.core.pods import Pod
    from devicemanager.kubelet.pods.admission import Admission

_EPILOG = """\
examples:
  %(prog)s pod.yaml --devices vendor.com/gpu=4@0,1 --topology-policy restricted
  %(prog)s first.yaml second.yaml --devices vendor.com/gpu=2@0,6@1 --all
  %(prog)s pod.yaml --claims claims.yaml --simulate-pools gpu=2,nic=1
  %(prog)s pod.yaml --snapshot node.tar.gz --what-if policy=restricted --without-pod train
  %(prog)s pod.yaml --checkpoint kubelet_internal_checkpoint --allocatable node.json

node.tar.gz is what `devicemanager snapshot` writes on that node, with its devices, pods, NUMA
nodes and policy. node.json is what `devicemanager resources -o json` prints there; without it
only the NUMA nodes of devices in use are known. Needs no kubelet and no plugin.
"""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(
        subparsers,
        "explain",
        _run,
        "show why a pod gets its devices, or why it is rejected",
        description="Admit pods, one after another, on a node that is only made up here, and "
        "explain the last one: 0 if it is admitted, 1 if not.",
    )
    parser.usage = "%(prog)s MANIFEST... --devices RESOURCE=COUNT[@NODE,...] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "manifests",
        nargs="+",
        metavar="MANIFEST",
        type=file_name,
        help="a pod's manifest; - for standard input",
    )
    parser.add_argument("--all", action="store_true", help="explain every pod, not only the last")
    add_format(parser, "text", "json")
    _add_node(parser)
    claims_options.add(parser)
    settings_options.add_topology(parser)
    settings_options.add_admission(parser)


def _add_node(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the node's devices")
    group.add_argument(
        "--devices",
        metavar=device_option.FORM,
        type=_devices,
        action="append",
        default=[],
        help=f"devices of a resource, given to the NUMA nodes in turn: {device_option.EXAMPLES}; "
        "may be repeated",
    )
    group.add_argument(
        "--unhealthy",
        metavar="RESOURCE=ID,…",
        type=_ids,
        action="append",
        default=[],
        help="devices that are unhealthy, such as vendor.com/gpu=gpu-0; may be repeated",
    )
    group.add_argument(
        "--snapshot",
        metavar="FILE",
        type=file_name,
        help="a node's snapshot: devices and who holds them, NUMA nodes, CPUs, memory and policy",
    )
    group.add_argument(
        "--what-if",
        metavar="KEY=VALUE",
        type=_what_if,
        action="append",
        default=[],
        help="with --snapshot, as if the kubelet had another policy, scope or policy option, such "
        "as policy=restricted; may be repeated",
    )
    group.add_argument(
        "--without-pod",
        metavar="NAME",
        action="append",
        default=[],
        help="with --snapshot, as if this pod were not there: a name, namespace/name or UID; may "
        "be repeated",
    )
    group.add_argument(
        "--checkpoint",
        metavar="FILE",
        type=file_name,
        help="a node's kubelet_internal_checkpoint: its devices, and the pods that hold them",
    )
    group.add_argument(
        "--allocatable",
        metavar="FILE",
        type=file_name,
        help="what `devicemanager resources -o json` prints: devices with their NUMA nodes",
    )


def _devices(text: str) -> device_option.DeviceOption:
    option = device_option.device_option(text)
    settings_options.device_resource(option.resource)
    return option


def _what_if(text: str) -> tuple[str, str]:
    from devicemanager.cli.offline_snapshot import what_if

    return what_if(text)


def _ids(text: str) -> tuple[str, list[str]]:
    resource, _, ids = text.rpartition("=")
    if not resource or not ids:
        raise argparse.ArgumentTypeError(f"{text!r} is not like vendor.com/gpu=gpu-0,gpu-1")
    return resource, ids.split(",")


def _run(args: argparse.Namespace) -> int:
    _check(args)
    with failures(args.output, "explain"):
        nodes = papers(args)
        claims = claims_options.load(args) if claims_options.given(args) else None
        pods = list(_pods(args.manifests))
        results = [_admitted(nodes[0].node(), pods, nodes[0].inventory, claims)]
        # Without a claim being asked for twice: what the node would say as it is.
        results += [_admitted(each.node(), pods, each.inventory, None) for each in nodes[1:]]
    shown = results[0] if args.all else results[0][-1:]
    notes = [*nodes[0].notes, *_kept(shown, nodes[0].saved), *_notes(args, nodes[0].inventory)]
    notes += [*_without_claims(shown, claims), *(_as_it_is(each[-1]) for each in results[1:])]
    if args.output == "json":
        print_json("explain", {"pods": [_as_dict(each) for each in shown], "notes": notes})
    else:
        print("\n".join(map(_text, shown)), end="")
        for note in notes:
            print(f"\nnote: {clean(note)}")
    return 0 if results[0][-1].admission.admitted else 1


def _check(args: argparse.Namespace) -> None:
    if args.snapshot is not None:
        for name in ("checkpoint", "allocatable"):
            if getattr(args, name) is not None:
                raise CommandError(f"--{name} and --snapshot: the snapshot has it already")
    elif args.what_if or args.without_pod:
        raise CommandError("--what-if and --without-pod change a snapshot: give --snapshot")
    elif not (args.devices or args.checkpoint or args.allocatable or claims_options.given(args)):
        raise CommandError(
            "which devices does the node have? Give --devices, --checkpoint, --allocatable,"
            " --snapshot or --claims"
        )
    check_one_standard_input(
        [
            *args.manifests,
            args.checkpoint,
            args.allocatable,
            args.snapshot,
            *args.claims_paths,
        ]
    )


def _as_it_is(result: Explained) -> str:
    admission = result.admission
    verdict = "admitted" if admission.admitted else f"rejected: {admission.reason}"
    pod = admission.pod
    return f"as the node is, pod {pod.namespace}/{pod.name} is {verdict}"


def _pods(manifests: Iterable[str]) -> Iterator[Pod]:
    """Raises CommandError for a pod that comes twice: a node admits it once."""
    first: dict[str, str] = {}
    for manifest in manifests:
        pod = _pod(manifest)
        if pod.uid in first:
            name = f"pod {pod.namespace}/{pod.name}"
            raise CommandError(
                f"{manifest}: {name} (UID {pod.uid}) is given in {first[pod.uid]} already: give "
                "each pod once, or another name or metadata.uid"
            )
        first[pod.uid] = manifest
        yield pod


def _pod(manifest: str) -> Pod:
    from pathlib import Path

    from devicemanager.objects.manifests import parse
    from devicemanager.objects.manifests.documents import MAX_SIZE
    from devicemanager.objects.manifests.errors import ManifestError

    if manifest == "-":
        # A line of its own, so that one word is not taken for a file's name.
        text = "\n" + _text_of(read_standard_input(MAX_SIZE))
        try:
            return parse(text)
        except ManifestError as error:
            raise CommandError(f"standard input: {error}") from error
    return parse(Path(manifest))


def _text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"standard input is not UTF-8 text (byte {error.start})") from None


def _notes(args: argparse.Namespace, inventory: Inventory) -> list[str]:
    """What the files do not contain, so that the explanation may be wrong."""
    from devicemanager.cli.offline_node import without_nodes

    if args.checkpoint is None or args.allocatable is not None:
        return []
    if args.topology_policy in (None, "none"):
        return []
    return [
        f"the checkpoint does not say on which NUMA nodes {count} devices of {resource} are, so "
        "this may be wrong: add --allocatable"
        for resource, count in without_nodes(inventory).items()
    ]


def _kept(shown: Iterable[Explained], saved: Checkpoint | None) -> Iterator[str]:
    """Of pods that hold devices already: no others are looked for."""
    there = {entry.pod_uid for entry in (saved and saved.entries) or ()}
    for admission in (each.admission for each in shown):
        pod = admission.pod
        if pod.uid in there:
            keeps = " and keeps its devices" if admission.admitted else ""
            yield f"pod {pod.namespace}/{pod.name} is in the checkpoint already{keeps}"


def _without_claims(shown: Iterable[Explained], claims: OfflineClaims | None) -> Iterator[str]:
    for pod in (each.admission.pod for each in shown):
        if pod.resource_claims and claims is None:
            name = f"{pod.namespace}/{pod.name}"
            yield f"pod {name} asks for claims, which are not looked at: add --claims"


class Explained(NamedTuple):
    """What became of a pod."""

    admission: Admission
    unregistered: Mapping[str, str]
    """The resources it asks for that no plugin registered, each with why that matters."""
    claims: Explanation | None = None
    """Why its structured claims get their devices, or do not."""


def _admitted(
    node: OfflineNode, pods: Iterable[Pod], inventory: Inventory, claims: OfflineClaims | None
) -> list[Explained]:
    """What becomes of the pods, one after another."""
    return [_one_admitted(node, pod, inventory, claims) for pod in pods]


def _one_admitted(
    node: OfflineNode, pod: Pod, inventory: Inventory, claims: OfflineClaims | None
) -> Explained:
    from devicemanager.core.api.names import is_extended_resource_name

    wanted = {
        name for container, _ in pod.all_containers() for name, n in container.limits.items() if n
    }
    strangers = filter(is_extended_resource_name, sorted(wanted - inventory.keys()))
    unregistered = {str(name): _unregistered(name, inventory) for name in strangers}
    if claims is None or not pod.resource_claims:
        return Explained(node.admit(pod), unregistered)
    # The kubelet allocates a pod's claims before its devices.
    explained, admission = claims.explain_pod(pod)
    if admission is None:
        admission = node.admit(pod)
        if not admission.admitted:
            claims.end(pod)
    return Explained(admission, unregistered, explained)


def _unregistered(resource: str, inventory: Inventory) -> str:
    import difflib

    close = difflib.get_close_matches(resource, list(map(str, inventory)), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"no plugin has registered {resource}{meant}"


def _text(result: Explained) -> str:
    lines = result.admission.explain().splitlines()
    if result.claims is not None:
        lines += ["", *result.claims.text().splitlines()]
    if result.unregistered:
        lines += ["", *(f"warning: {reason}" for reason in result.unregistered.values())]
    return "".join(f"{clean(line)}\n" for line in lines)


def _as_dict(result: Explained) -> dict[str, Any]:
    from devicemanager.core.explanation.data import as_dict
    from devicemanager.kubelet.pods.data import oci_data

    admission = result.admission
    explanation = admission.explanation
    pod = admission.pod
    answer = {
        "pod": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "admitted": admission.admitted,
        "reason": admission.reason,
        "message": admission.message,
        "policy": None,
        "steps": [],
        "holders": [],
    }
    return {
        **(answer if explanation is None else as_dict(explanation)),
        "unregistered": dict(result.unregistered),
        "claims": None if result.claims is None else result.claims.as_dict(),
        # Of pods that a checkpoint knows; no plugin is asked here.
        "containers": {name: oci_data(given) for name, given in admission.containers.items()},
    }
