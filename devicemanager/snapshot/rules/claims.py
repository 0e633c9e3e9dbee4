"""Rules for the DRA manager's state file."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint import dra
from devicemanager.snapshot.node import Node
from devicemanager.snapshot.rules.finding import Finding, Kind, Severity

__all__ = ["RULES"]

_OLD = "kubelets before v1.32"


def damaged(node: Node) -> Iterator[Finding]:
    """Find a state file that prevents the start of kubelets since v1.32 (``newClaimInfoCache``,
    cm/dra/claiminfo.go, v1.36)."""
    saved = node.dra_saved
    if saved is None or not saved.problems:
        return
    # An old file is not damaged, but it needs the same fix.
    is_old = any(_OLD in problem for problem in saved.problems)
    message = f"has the format of {_OLD}" if is_old else "is damaged"
    # A text that is also a problem is shown only once.
    lost = [f"lost: {each}" for each in saved.lost if each not in saved.problems]
    yield Finding(
        Kind.DRA_STATE_DAMAGED,
        Severity.ERROR,
        f"the state file of the DRA manager {message}",
        (*saved.problems, *lost, f"readable claims: {len(node.claims)}"),
    )


def prepared_twice(node: Node) -> Iterator[Finding]:
    """Find devices, or shares of a device, that are prepared for several claims.

    This is valid only for claims with admin access. The file does not show which claims have it.
    """
    for found in _inconsistencies(node, dra.FindingKind.SHARED_DEVICE):
        pods = sorted(
            {uid for claim in node.claims if _key(claim) in found.claims for uid in claim.pods}
        )
        yield Finding(
            Kind.PREPARED_TWICE,
            Severity.ERROR,
            found.text,
            (
                "only a claim with admin access may share devices; the file does not show whether "
                "a claim has admin access",
                f"pods: {', '.join(map(node.title, pods)) or 'none'}",
            ),
            pods=tuple(pods),
        )


def gone(node: Node) -> Iterator[Finding]:
    """Find claims whose pods are no longer on the node."""
    directories = node.snapshot.directories
    # PodResources lists no init containers, so only the kubelet's directories are certain.
    if directories is None or directories.uids is None:
        return
    held: dict[str, list[str]] = {}
    for claim in node.claims:
        for uid in claim.pods.difference(directories.uids):
            held.setdefault(uid, []).append(_key(claim))
    for uid, claims in sorted(held.items()):
        yield Finding(
            Kind.CLAIM_POD_GONE,
            Severity.WARNING,
            f"pod {node.title(uid)} holds claims, but is not on the node",
            (
                f"claims of the pod in the file: {', '.join(sorted(claims))}",
                "the kubelet has no directory for the pod",
            ),
            pods=(uid,),
        )


_KINDS = {
    dra.FindingKind.NO_PODS: Kind.CLAIM_WITHOUT_PODS,
    dra.FindingKind.REPEATED_CLAIM: Kind.REPEATED_CLAIM,
    dra.FindingKind.REPEATED_DEVICE: Kind.REPEATED_CLAIM_DEVICE,
}


def inconsistent(node: Node) -> Iterator[Finding]:
    """Find claims without pods, and claims or devices that the file lists more than once."""
    for kind, ours in _KINDS.items():
        for found in _inconsistencies(node, kind):
            yield Finding(ours, Severity.WARNING, found.text)


def _inconsistencies(node: Node, kind: dra.FindingKind) -> Iterator[dra.Finding]:
    return (each for each in dra.inconsistencies(node.claims) if each.kind is kind)


def _key(claim: dra.ClaimState) -> str:
    return f"{claim.namespace}/{claim.name}"


RULES = (damaged, prepared_twice, gone, inconsistent)
