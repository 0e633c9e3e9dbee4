"""``devicemanager fleet``: read the archive of ``devicemanager snapshot cluster``, show its nodes,
check whether pods fit, and rehearse changes of the nodes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.files import add_file, read_file
from devicemanager.cli.options import CommandError, CommandParser, add_format, command
from devicemanager.cli.output import clean, failures, print_json, print_table
from devicemanager.cli.rehearse import add_steps
from devicemanager.cli.settings_options import number
from devicemanager.core.printable import counted

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.fleet import Candidate, Fleet, NodeFit, NodeRehearsal, NodeUsage

_REPEAT = 10
_MOST_LINES = 20
"""Maximum number of problems and of nodes in text output; JSON has all."""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager fleet`` and its actions."""
    parser = subparsers.add_parser(
        "fleet",
        help="show all nodes of a cluster, whether pods fit, and what changes would do",
        description="Work with the archive of `devicemanager snapshot cluster`. The cluster is "
        "not contacted.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=CommandParser)
    show = command(
        actions,
        "show",
        _show,
        "show utilisation, fragmentation and problems; exit status 0 if there are none, else 1",
    )
    fits = command(
        actions,
        "fits",
        _fits,
        "check whether copies of a pod fit; exit status 0 if they do, else 1",
    )
    rehearse = command(
        actions,
        "rehearse",
        _rehearse,
        "rehearse a change on all nodes; exit status 1 if a pod would be lost, else 0",
    )
    for each in (show, fits, rehearse):
        if each is fits:
            add_file(each, "pod", "manifest of the pod, with its ResourceClaimTemplates")
        add_file(each, "fleet", "archive of the fleet; - for standard input")
        add_format(each, "text", "json")
        each.add_argument(
            "--processes",
            type=number(int, 1),
            metavar="N",
            help="number of parallel processes (default: one per CPU)",
        )
    fits.add_argument(
        "--replicas",
        type=number(int, 1),
        default=1,
        metavar="N",
        help="number of copies of the pod (default: 1)",
    )
    rehearse.usage = "%(prog)s FLEET STEP... [options]"
    add_steps(rehearse, repeat=_REPEAT)


def load_fleet(file: str) -> Fleet:
    """Read the archive of a cluster (a *fleet*); ``-`` is standard input. Raises FleetError,
    SnapshotError and OSError."""
    from devicemanager.fleet.archive import MAX_PACKED, read_fleet

    return read_fleet(read_file(file, MAX_PACKED), file)


# -- show --------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    with failures(args.output, "fleet-report", file=args.fleet):
        fleet = load_fleet(args.fleet)
        from devicemanager.fleet import report
        from devicemanager.fleet.counting import usage

        nodes = list(usage(fleet, args.processes))
        made = sum(not each.has_snapshot for each in nodes)
    if args.output == "json":
        print_json("fleet-report", {"file": args.fleet, **report.show_data(fleet, nodes, made)})
    else:
        _print_show(fleet, nodes, made)
    return 1 if any(_is_problem(each) for each in nodes) else 0


def _is_problem(node: NodeUsage) -> bool:
    from devicemanager.snapshot import Severity

    # A note is not a fault: for example, virtual devices have no NUMA node.
    return any(each.severity is not Severity.NOTE for each in node.findings)


def _print_show(fleet: Fleet, nodes: Sequence[NodeUsage], made: int) -> None:
    from devicemanager.fleet import report

    versions = sorted({each.version for each in nodes if each.version})
    kubelets = f", kubelet {', '.join(versions)}" if versions else ""
    print(clean(f"{counted(len(nodes), 'node')} of {fleet.server}, {fleet.taken}{kubelets}"))
    print_table(report.ROOM_HEADER, report.room_rows(nodes))
    if found := report.pools(fleet):
        columns = ("POOL", "DEVICES", "ALLOCATED", "BLOCKED")
        rows = [
            (f"{each.driver}/{each.pool}", *map(str, (each.devices, each.allocated, each.blocked)))
            for each in found
        ]
        print_table(columns, rows)
    for text in report.splits(nodes, fleet):
        print(clean(f"- {text}"))
    _print_some(
        f"{each.severity.upper()}: {node.name}: {each.text}"
        for node in nodes
        for each in node.findings
    )
    print(
        "basis: the device counts in the status of nodes, the requests of pods, and the snapshots "
        "of nodes"
    )
    _print_assumptions(report.assumptions(fleet, made))


def _print_some(lines: Iterator[str]) -> None:
    every = list(lines)
    for line in every[:_MOST_LINES]:
        print(clean(line))
    if len(every) > _MOST_LINES:
        print(f"… and {len(every) - _MOST_LINES} more: use -o json")


def _print_assumptions(texts: Iterator[str]) -> None:
    for text in texts:
        print(clean(f"assumed: {text}"))


# -- fits --------------------------------------------------------------------------------


def _fits(args: argparse.Namespace) -> int:
    with failures(args.output, "fleet-fit", file=args.fleet, pod=args.pod):
        fleet = load_fleet(args.fleet)
        from devicemanager.fleet import report
        from devicemanager.fleet.fitting import fit, quota

        candidate = _candidate(fleet, args.pod)
        fits = list(fit(fleet, candidate, args.replicas, args.processes))
        # Only quotas that forbid some of the copies are worth a line.
        quotas = [each for each in quota(fleet, candidate) if each[2] < args.replicas]
    room = min(sum(each.pods for each in fits), args.replicas)
    # A quota limits the namespace on all nodes together, so the smallest number counts.
    most = min([room, *(each[2] for each in quotas)])
    if args.output == "json":
        limits = [
            {"quota": name, "resource": resource, "pods": count} for name, resource, count in quotas
        ]
        data = {**report.fit_data(fits, args.replicas), "pods": most, "quotas": limits}
        data["basis"] = _basis(fleet)
        data["assumptions"] = [*report.FIT_ASSUMPTIONS, *_fit_assumptions(fleet)]
        print_json("fleet-fit", {"file": args.fleet, "pod": args.pod, **data})
    else:
        _print_fits(fleet, fits, quotas, most, args.replicas)
    return 0 if most >= args.replicas else 1


def _fit_assumptions(fleet: Fleet) -> Iterator[str]:
    from devicemanager.fleet import report

    return report.assumptions(fleet, len(fleet.nodes) - len(fleet.archives))


def _candidate(fleet: Fleet, file: str) -> Candidate:
    from devicemanager.fleet import Candidate
    from devicemanager.objects.manifests.documents import load_documents
    from devicemanager.objects.manifests.sources import read

    documents: list[Any] = load_documents(read(Path(file)))
    named = [each if isinstance(each, dict) else {} for each in documents]
    pods = [each for each in named if each.get("kind") == "Pod"]
    if len(pods) != 1:
        raise CommandError(f"{file}: expected one Pod, found {len(pods)}")
    templates = [each for each in named if each.get("kind") == "ResourceClaimTemplate"]
    return Candidate.of(fleet, pods[0], templates)


def _print_fits(
    fleet: Fleet,
    fits: Sequence[NodeFit],
    quotas: Sequence[tuple[str, str, int]],
    most: int,
    replicas: int,
) -> None:
    from devicemanager.fleet import report
    from devicemanager.fleet.fitting import reasons

    nodes = sum(each.pods > 0 for each in fits)
    verdict = "fits" if most >= replicas else "does not fit"
    print(
        f"the pod {verdict}; copies that fit: {most} of {replicas}; "
        f"nodes with room: {nodes} of {len(fits)}"
    )
    for name, resource, count in quotas:
        copies = "copy" if count == 1 else "copies"
        print(clean(f"- quota {name}: {resource} allows {count} more {copies}"))
    _print_some(f"- {counted(count, 'node')}: {text}" for text, count in reasons(fits).items())
    print(clean(f"basis: {_basis(fleet)}"))
    _print_assumptions(iter((*report.FIT_ASSUMPTIONS, *_fit_assumptions(fleet))))


def _basis(fleet: Fleet) -> str:
    from devicemanager.core.versions.changelog import basis
    from devicemanager.core.versions.version import DEFAULT, KubeletVersion

    versions = {node.version or KubeletVersion(DEFAULT) for node in fleet.nodes}
    return "; ".join(f"kubelet {basis(each)}" for each in sorted(versions))


# -- rehearse ----------------------------------------------------------------------------


def _rehearse(args: argparse.Namespace) -> int:
    with failures(args.output, "fleet-rehearsal", file=args.fleet):
        if not args.steps:
            raise CommandError("no step: add one, such as --reboot or --kubelet-version 1.37")
        fleet = load_fleet(args.fleet)
        from devicemanager.fleet import report
        from devicemanager.fleet.rehearsals import rehearse_fleet
        from devicemanager.observe.terminal.progress import Work

        # The processes start before the progress bar, which is a thread.
        running = rehearse_fleet(
            fleet, args.steps, repeat=args.repeat, seed=args.seed, processes=args.processes
        )
        with Work("rehearse", len(fleet.nodes)) as work:
            results = list(work.tracked(running))
        # Exit status 0 would say that no pod is lost, although no node was rehearsed.
        if results and all(each.result is None for each in results):
            raise CommandError(f"no node can be rehearsed: {results[0].node}: {results[0].problem}")
    if args.output == "json":
        data = report.rehearsal_data(results)
        data["assumptions"] = list(_fit_assumptions(fleet))
        print_json("fleet-rehearsal", {"file": args.fleet, **data})
    else:
        _print_rehearsals(fleet, results)
    return 1 if any(each.loses_pods for each in results) else 0


def _print_rehearsals(fleet: Fleet, results: Sequence[NodeRehearsal]) -> None:
    from devicemanager.rehearsal import report

    done = [each.result for each in results if each.result is not None]
    bad = [each for each in done if each.loses_pods]
    if bad:
        rows = [(each.node, report.summary(each)) for each in bad[:_MOST_LINES]]
        print_table(("NODE", "RESULT"), rows)
        if len(bad) > _MOST_LINES:
            print(f"… and {len(bad) - _MOST_LINES} more: use -o json")
    pods = [pod for each in done for pod in each.pods]
    lost, certain = (
        sum(getattr(pod, name) for pod in pods) for name in ("can_be_lost", "is_always_lost")
    )
    # A pod that can be lost is already counted, so only further pods are added.
    without = sum(pod.without_devices > 0 and not pod.can_be_lost for pod in pods)
    print(
        f"{len(bad)} of {counted(len(done), 'node')} can lose pods; "
        f"pods that can be lost: {lost} of {len(pods)}; "
        f"pods that are lost in every order: {certain}"
        + (f"; further pods that can be without their devices: {without}" if without else "")
    )
    _print_some(f"- {each.node}: not rehearsed: {each.problem}" for each in results if each.problem)
    _print_some(
        f"- {each.node}: {said.text} -> {said.advice}" for each in bad for said in each.statements
    )
    # Many nodes have the same kubelet version, so each text is printed once.
    for text in sorted({said.basis for each in bad for said in each.statements}):
        print(clean(f"basis: kubelet {text}"))
    counts: dict[str, int] = {}
    for text in (text for each in done for text in each.assumptions):
        counts[text] = counts.get(text, 0) + 1
    _print_some(f"assumed on {counted(count, 'node')}: {text}" for text, count in counts.items())
    _print_assumptions(_fit_assumptions(fleet))
