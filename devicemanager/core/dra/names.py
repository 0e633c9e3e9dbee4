"""Names of the ResourceClaims that a pod or a container uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from devicemanager.core.dra import messages
from devicemanager.core.dra.errors import DraError
from devicemanager.core.dra.model import PodClaim, PodClaims
from devicemanager.core.dra.rules import DraRules


class ClaimName(NamedTuple):
    """Name of the ResourceClaim for an entry of a pod's ``spec.resourceClaims``."""

    name: str
    owned: bool
    """True if the claim is created from a template. Then the pod must be the owner of the claim."""


def claim_name(
    pod: PodClaims, claim: PodClaim, rules: DraRules, wording: str | None = None
) -> ClaimName | None:
    """Return the name of the claim for an entry of the pod's ``spec.resourceClaims``.

    Returns None if the pod needs no claim for the entry. Raises DraError if the claim does not
    exist yet, or if the entry names neither a claim nor a template (``resourceclaim.Name``).

    ``wording`` is the format of the error's message: ``{error}`` in it is replaced with the cause.
    The default is the format for errors of a prepare.
    """
    wording = wording or rules.wording.prepare_name
    if claim.claim is not None:
        return ClaimName(claim.claim, False)
    if claim.template is not None:
        # An entry without a name and a missing entry differ: the first means that no claim is
        # needed, the second that the claim has not been created yet.
        if claim.name not in pod.statuses:
            text = messages.NOT_CREATED.format(pod=pod.label)
            raise DraError(wording.format(error=text))
        name = pod.statuses[claim.name]
        return None if name is None else ClaimName(name, True)
    text = messages.NO_SOURCE.format(pod=pod.label, claim=claim.name)
    raise DraError(wording.format(error=text))


def claim_names(pod: PodClaims, rules: DraRules, wording: str | None = None) -> Iterator[ClaimName]:
    """Iterate over the names of all claims of the pod. The claim of the pod's extended resources is
    last.

    The iteration raises DraError when it reaches a claim that does not exist yet. It also raises
    DraError for an entry of ``spec.resourceClaims`` that names neither a claim nor a template.
    """
    for claim in pod.claims:
        name = claim_name(pod, claim, rules, wording)
        if name is not None:
            yield name
    if pod.extended is not None and rules.behaviour.dra_extended:
        yield ClaimName(pod.extended.claim, False)
