"""Targets of structured claims: objects, and constraints on devices."""

from __future__ import annotations

from tools.fuzz.files import one_line
from tools.fuzz.guard import Run
from tools.fuzz.model import Target

_CEL = (
    "device",
    "driver",
    "==",
    "&&",
    "||",
    "in",
    "has(",
    ".matches(",
    "quantity(",
    "semver(",
    "?:",
)


def targets() -> list[Target]:
    """What drivers, administrators and users write."""
    return [
        Target(
            "claim-object",
            "a pool, class or claim, of anybody",
            _object,
            ("devicemanager.claims", "devicemanager.objects.manifests"),
            ("DevicePool", "DeviceClass", "ResourceClaim", "spec", "devices", "attributes"),
        ),
        Target(
            "claim-constraint",
            "a constraint of a class or claim, of anybody",
            _constraint,
            ("devicemanager.claims",),
            _CEL,
        ),
        Target(
            "claim-state",
            "device_claims_state, of any kubelet",
            _state,
            ("devicemanager.claims",),
            ('"charges"', '"claims"', '"grants"', '"users"', '"prepared"', '"nanos"', '"shared"'),
        ),
    ]


def _object() -> Run:
    from devicemanager.claims.errors import InvalidObject
    from devicemanager.claims.v1alpha1.reading import read_object
    from devicemanager.objects.manifests import ManifestError
    from devicemanager.objects.manifests.documents import load_documents

    def run(data: bytes) -> None:
        try:
            documents = load_documents(data.decode(errors="replace"))
        except ManifestError:
            return  # fuzzed as manifests are
        for document in documents[:5]:
            try:
                read_object(document)
            except InvalidObject as error:
                for line in error.lines:
                    one_line(line)

    return run


def _constraint() -> Run:
    from devicemanager.claims import cel
    from devicemanager.claims.errors import CompileError, EvaluationError

    def run(data: bytes) -> None:
        try:
            expression = cel.compile_v1alpha1(data.decode(errors="replace"))
            if expression is not None:
                expression.matches({})
        except (CompileError, EvaluationError) as error:
            one_line(str(error))

    return run


def _state() -> Run:
    from devicemanager.claims.core.ledger import Ledger, LedgerError
    from devicemanager.claims.state_file import (
        StateCorrupt,
        StateWriter,
        parse_state,
        with_checksum,
    )

    def run(data: bytes) -> None:
        # With the right checksum, or no input would get any further.
        try:
            state = parse_state(with_checksum(data))
            Ledger.restore(state.ledger())
        except (StateCorrupt, LedgerError) as error:
            one_line(str(error))
        else:
            assert parse_state(StateWriter().render(state)) == state

    return run
