"""``devicemanager explain``: explain why a pod gets its devices, or is rejected, on a simulated
node.

An in-memory kubelet admits the pods one after another. The command prints the kubelet's explanation
for the last pod, with notes on information that the given files lack.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from devicemanager.cli import claims_options, settings_options
from devicemanager.cli.files import (
    add_file,
    check_one_standard_input,
    load_checkpoint,
    read_standard_input,
)
from devicemanager.cli.options import CommandError, add_format, add_repeated, command
from devicemanager.cli.output import clean, failures, lines_of, print_json
from devicemanager.cli.settings_options import (
    CHOICES,
    DEVICES_EXAMPLES,
    DEVICES_FORM,
    DEVICES_MEANING,
    DeviceOption,
    device_option,
)
from devicemanager.cli.snapshot_files import load_snapshot
from devicemanager.core.printable import counted
from devicemanager.io.safe_read import not_utf8

if TYPE_CHECKING:
    from checkpoint import Checkpoint
    from devicemanager.claims.explanation import Explanation
    from devicemanager.cli.dra_pods import PodExplanation
    from devicemanager.cli.offline_claims import OfflineClaims
    from devicemanager.cli.offline_dra import OfflineDra
    from devicemanager.cli.offline_node import OfflineNode
    from devicemanager.cli.options import Subparsers
    from devicemanager.core.pods import Pod
    from devicemanager.kubelet.inmemory.kubelet import InMemoryKubelet
    from devicemanager.kubelet.pods.admission import Admission
    from devicemanager.rehearsal.inventory import Inventory
    from devicemanager.rehearsal.snapshot_node import SnapshotNode

_EPILOG = """\
examples:
  %(prog)s pod.yaml --devices vendor.com/gpu=4@0,1 --topology-policy restricted
  %(prog)s first.yaml second.yaml --devices vendor.com/gpu=2@0,6@1 --all
  %(prog)s pod.yaml --claims claims.yaml --simulate-pools gpu=2,nic=1
  %(prog)s pod.yaml --claims slices-and-classes.yaml
  %(prog)s pod.yaml --snapshot node.tar.gz --what-if policy=restricted --without-pod train
  %(prog)s pod.yaml --checkpoint kubelet_internal_checkpoint --allocatable node.json

node.tar.gz is the output of `devicemanager snapshot` on that node: devices, pods, NUMA nodes and
policy. node.json is the output of `devicemanager resources -o json` there; without it, only NUMA
nodes of allocated devices are known. No kubelet and no plugin are needed.
"""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager explain`` and its options."""
    parser = command(
        subparsers,
        "explain",
        _run,
        "explain why a pod gets its devices, or why it is rejected",
        description="Admit pods, one after another, on a simulated node, and explain the result "
        "for the last one. The exit status is 0 if it is admitted, 1 if rejected, and 3 if the "
        "search for its claims reached its limits.",
    )
    # The generated usage would fill the screen with the flags of all settings.
    parser.usage = "%(prog)s MANIFEST... --devices RESOURCE=COUNT[@NUMA,...][,...] [options]"
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_file(
        parser, "manifests", "pod manifest; - for standard input", nargs="+", metavar="MANIFEST"
    )
    parser.add_argument("--all", action="store_true", help="explain all pods, not only the last")
    add_format(parser, "text", "json")
    _add_node(parser)
    claims_options.add(parser)
    settings_options.add_settings(parser, "topology", "version", "admission")


def _add_node(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices of the node")
    add_repeated(
        group,
        "--devices",
        DEVICES_FORM,
        f"devices of a resource: {DEVICES_EXAMPLES} ({DEVICES_MEANING})",
        type=_devices,
    )
    add_repeated(
        group,
        "--unhealthy",
        "RESOURCE=ID,…",
        "unhealthy devices, such as vendor.com/gpu=gpu-0",
        type=_ids,
    )
    add_file(
        group,
        "--snapshot",
        "snapshot of a node: devices, allocations, NUMA nodes, CPUs, memory and policy",
    )
    add_repeated(
        group,
        "--what-if",
        "KEY=VALUE",
        "with --snapshot, use another policy, scope or policy option, such as policy=restricted",
        type=_what_if,
    )
    add_repeated(
        group,
        "--without-pod",
        "NAME",
        "with --snapshot, free the devices of this pod: a name, namespace/name or UID",
    )
    add_file(
        group, "--checkpoint", "kubelet_internal_checkpoint of a node: its devices and allocations"
    )
    add_file(
        group,
        "--allocatable",
        "output of `devicemanager resources -o json`: devices with their NUMA nodes",
    )


def _devices(text: str) -> DeviceOption:
    option = device_option(text)
    settings_options.device_resource(option.resource)
    return option


def _what_if(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    choices = CHOICES.get(f"topology_{key}", ())
    if not equals or not value or (choices and value not in choices):
        allowed = f": use one of {', '.join(choices)}" if choices and equals else ""
        raise argparse.ArgumentTypeError(
            f"invalid change {text!r}: expected KEY=VALUE, such as policy=restricted{allowed}"
        )
    return key, value


def _ids(text: str) -> tuple[str, list[str]]:
    resource, _, ids = text.rpartition("=")
    if not resource or not ids:
        raise argparse.ArgumentTypeError(
            f"invalid devices {text!r}: expected RESOURCE=ID,…, such as vendor.com/gpu=gpu-0,gpu-1"
        )
    return resource, ids.split(",")


def _run(args: argparse.Namespace) -> int:
    _check(args)
    with failures(args.output, "explain"):
        nodes = _nodes(args)
        given = claims_options.given(args)
        claims = claims_options.load_of_pods(args, args.manifests) if given else None
        pods = list(_pods(args.manifests))
        results = [_admitted(nodes[0], pods, claims)]
        # The unchanged node, for comparison. It has no claims, which can be allocated only once.
        results += [_admitted(each, pods, None) for each in nodes[1:]]
    shown = results[0] if args.all else results[0][-1:]
    notes = [*nodes[0].notes, *_known(shown, nodes[0].saved), *_notes(args, nodes[0].inventory)]
    notes += [*_without_claims(shown, claims), *(_unchanged(each[-1]) for each in results[1:])]
    if args.output == "json":
        print_json("explain", {"pods": [_as_dict(each) for each in shown], "notes": notes})
    else:
        print("\n".join(map(_text, shown)), end="")
        for note in notes:
            print(f"\nnote: {clean(note)}")
    admission = results[0][-1].admission
    return 3 if admission.undecided else 0 if admission.admitted else 1


def _check(args: argparse.Namespace) -> None:
    if args.snapshot is not None:
        for name in ("checkpoint", "allocatable"):
            if getattr(args, name) is not None:
                raise CommandError(f"--{name} and --snapshot exclude each other: use one of them")
    elif args.what_if or args.without_pod:
        raise CommandError("--what-if and --without-pod require --snapshot")
    elif not (args.devices or args.checkpoint or args.allocatable or claims_options.given(args)):
        raise CommandError(
            "the node has no devices: use --devices, --checkpoint, --allocatable, --snapshot or "
            "--claims"
        )
    # Checked before any file is read, because each of them can be `-`.
    check_one_standard_input(
        [
            *args.manifests,
            args.checkpoint,
            args.allocatable,
            args.snapshot,
            *args.claims_paths,
        ]
    )


def _nodes(args: argparse.Namespace) -> list[OfflineNode]:
    """Return the node to explain. If ``--what-if`` or ``--without-pod`` changes the node, also
    return the unchanged node."""
    from devicemanager.cli.offline_node import (
        OfflineNode,
        add_allocatable,
        apply_flags,
    )
    from devicemanager.rehearsal.inventory import add_checkpoint, nodes_of

    if args.snapshot is None:
        saved = None if args.checkpoint is None else load_checkpoint(args.checkpoint)
        inventory: Inventory = {}
        if saved is not None:
            add_checkpoint(inventory, saved)
        if args.allocatable is not None:
            add_allocatable(inventory, args.allocatable)
        apply_flags(inventory, args)
        settings = settings_options.settings_from(args, nodes_of(inventory))
        return [OfflineNode(inventory, settings, saved)]
    # Read first, because this reports a missing extra that the imports below need.
    snapshot = load_snapshot(args.snapshot)
    from devicemanager.rehearsal.snapshot_node import SnapshotNode
    from devicemanager.snapshot.node import Node

    original = SnapshotNode.of(Node(snapshot))
    nodes = [_from_snapshot(args, original)]
    if args.what_if or args.without_pod:
        # The changed node comes first, because the command explains the first node.
        nodes.insert(0, _from_snapshot(args, _changed(original, args)))
    return nodes


def _changed(node: SnapshotNode, args: argparse.Namespace) -> SnapshotNode:
    from devicemanager.rehearsal.errors import RehearsalError

    try:
        return node.changed(args.what_if, args.without_pod)
    except RehearsalError as error:
        raise CommandError(f"--without-pod: {error}") from None


def _from_snapshot(args: argparse.Namespace, source: SnapshotNode) -> OfflineNode:
    from devicemanager.cli.offline_node import OfflineNode, apply_flags
    from devicemanager.rehearsal.inventory import nodes_of

    inventory = source.inventory()
    apply_flags(inventory, args)
    # Flags override the kubelet's configuration in the snapshot.
    merged = argparse.Namespace(**vars(args))
    merged.topology_policy = args.topology_policy or source.aligned.policy
    merged.topology_scope = args.topology_scope or source.aligned.scope
    # The flags come last, because the last value of an option counts.
    merged.topology_options = [*source.aligned.options.items(), *args.topology_options]
    machine = source.machine(inventory)
    settings = settings_options.settings_from(merged, nodes_of(inventory), machine)
    return OfflineNode(inventory, settings, source.saved, source.names, source.notes)


def _unchanged(result: AdmissionResult) -> str:
    admission = result.admission
    verdict = "admitted" if admission.admitted else f"rejected: {admission.reason}"
    pod = admission.pod
    return f"without the changes, pod {pod.namespace}/{pod.name} is {verdict}"


def _pods(manifests: Iterable[str]) -> Iterator[Pod]:
    """Yield the pods of the manifests. Raises CommandError if two pods have the same UID."""
    first: dict[str, str] = {}
    for manifest in manifests:
        pod = _pod(manifest)
        if pod.uid in first:
            name = f"pod {pod.namespace}/{pod.name}"
            raise CommandError(
                f"{manifest}: {name} (UID {pod.uid}) is also in {first[pod.uid]}: remove one, or "
                "change its name or metadata.uid"
            )
        # A manifest without a UID gets one that is derived from namespace and name.
        first[pod.uid] = manifest
        yield pod


def _pod(manifest: str) -> Pod:
    from pathlib import Path

    from devicemanager.objects.manifests import parse
    from devicemanager.objects.manifests.documents import MAX_SIZE
    from devicemanager.objects.manifests.errors import ManifestError

    if manifest == "-":
        # `parse` reads a text without a line end as a file name, so one is added.
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
        raise CommandError(f"standard input: {not_utf8(error)}") from None


def _notes(args: argparse.Namespace, inventory: Inventory) -> list[str]:
    """Return notes on information that the files lack and that can make the explanation wrong."""
    from devicemanager.cli.offline_node import without_nodes

    if args.checkpoint is None or args.allocatable is not None:
        return []
    # Without alignment, NUMA nodes do not change the result.
    if args.topology_policy in (None, "none"):
        return []
    return [
        f"the explanation may be wrong: the NUMA nodes of {counted(count, 'device')} of {resource} "
        "are not in the checkpoint; use --allocatable"
        for resource, count in without_nodes(inventory).items()
    ]


def _known(shown: Iterable[AdmissionResult], saved: Checkpoint | None) -> Iterator[str]:
    """Yield a note for each pod that is already in the checkpoint. Such a pod keeps its devices, so
    none are selected for it."""
    # An admission of a known pod is like that after a restart of the kubelet.
    known = {entry.pod_uid for entry in (saved and saved.entries) or ()}
    for admission in (each.admission for each in shown):
        pod = admission.pod
        if pod.uid in known:
            keeps = " and keeps its devices" if admission.admitted else ""
            yield f"pod {pod.namespace}/{pod.name} is in the checkpoint already{keeps}"


def _without_claims(
    shown: Iterable[AdmissionResult], claims: OfflineClaims | OfflineDra | None
) -> Iterator[str]:
    for pod in (each.admission.pod for each in shown):
        if pod.resource_claims and claims is None:
            name = f"{pod.namespace}/{pod.name}"
            yield f"the claims of pod {name} are ignored: add --claims"


class AdmissionResult(NamedTuple):
    """Result for one pod: admission or rejection, warnings, and an explanation of its claims."""

    admission: Admission
    unregistered: Mapping[str, str]
    """Warnings about requested resources that no plugin has registered, with the resources as
    keys."""
    claims: Explanation | PodExplanation | None = None
    """Explanation of the pod's claims: the devices that they get, or why they do not fit.

    None for a pod without claims, for a claim that can never be allocated, and if the command reads
    no claims.
    """


def _admitted(
    node: OfflineNode, pods: Iterable[Pod], claims: OfflineClaims | OfflineDra | None
) -> list[AdmissionResult]:
    """Admit the pods, one after another, and return their results."""
    kubelet = node.kubelet()
    return [_admit(kubelet, pod, node.inventory, claims) for pod in pods]


def _admit(
    kubelet: InMemoryKubelet,
    pod: Pod,
    inventory: Inventory,
    claims: OfflineClaims | OfflineDra | None,
) -> AdmissionResult:
    from devicemanager.core.api.names import is_extended_resource_name

    wanted = {
        name for container, _ in pod.all_containers() for name, n in container.limits.items() if n
    }
    # Only extended resources come from plugins. A name such as cpu needs no warning.
    unknown = filter(is_extended_resource_name, sorted(wanted - inventory.keys()))
    unregistered = {str(name): _unregistered(name, inventory) for name in unknown}
    if claims is None or not pod.resource_claims:
        return AdmissionResult(kubelet.admit(pod, start=False), unregistered)
    # The kubelet allocates a pod's claims before its devices.
    explanation, admission = claims.explain_pod(pod)
    if admission is None:
        admission = kubelet.admit(pod, start=False)
        if not admission.admitted:
            # The pod never starts, so the devices of its claims must be free for later pods.
            claims.end(pod)
    return AdmissionResult(admission, unregistered, explanation)


def _unregistered(resource: str, inventory: Inventory) -> str:
    import difflib

    # Users more often misspell a name than forget a plugin.
    close = difflib.get_close_matches(resource, list(map(str, inventory)), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"no plugin has registered {resource}{meant}"


def _text(result: AdmissionResult) -> str:
    lines = lines_of(result.admission.explain())
    if result.claims is not None:
        lines += ["", *lines_of(result.claims.text())]
    if result.unregistered:
        lines += ["", *(clean(f"warning: {reason}") for reason in result.unregistered.values())]
    return "".join(f"{line}\n" for line in lines)


def _as_dict(result: AdmissionResult) -> dict[str, Any]:
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
        # Only pods in a checkpoint have settings, because no plugin is called.
        "containers": {name: oci_data(given) for name, given in admission.containers.items()},
    }
