"""The DRA manager's state file, as the checkpoint commands show it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from checkpoint import dra
from devicemanager.cli.checkpoint_contents import CLAIMS, Edited, Fact, Facts, Inspected
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from checkpoint.dra import ClaimState, Device, DriverState
    from devicemanager.snapshot import Node
    from devicemanager.snapshot.names import Names
    from podresources import Pod


@attrs.frozen
class ClaimContents(Inspected["dra.Inspection"]):
    """Readable contents of a state file of the DRA manager. Implements
    ``checkpoint_contents.Contents``."""

    data: bytes
    found: dra.Inspection

    format = CLAIMS

    @classmethod
    def read(cls, data: bytes) -> ClaimContents:
        """Return the readable contents of ``data``, the bytes of a file that may be damaged."""
        return cls(data, dra.inspect(data))

    @property
    def _claims(self) -> tuple[ClaimState, ...]:
        return self.found.state.claims or ()

    def is_empty(self) -> bool:
        return not self._claims

    def lines(self, names: Names) -> Iterator[str]:
        if not self._claims:
            # Nothing is known about the claims of a damaged file.
            yield "no claims are readable" if self.problems else "no claims are prepared"
        for claim in self._claims:
            yield f"claim {_title(claim)} (UID {clean(claim.uid)})"
            yield f"  pods: {', '.join(_pod(uid, names) for uid in sorted(claim.pods)) or 'none'}"
            for driver, state in claim.drivers.items():
                yield from _driver_lines(driver, state)

    def as_dict(self, names: Names) -> dict[str, Any]:
        return {"claims": [_claim_data(claim, names) for claim in self._claims]}

    def counts(self) -> dict[str, int]:
        return {"claims": len(self._claims), "pods": len(self.pods())}

    def facts(self) -> Facts:
        return {
            ("claim", f"{claim.namespace}/{claim.name}"): Fact(
                "; ".join(_parts(claim)), _claim_data(claim, {})
            )
            for claim in self._claims
        }

    def findings(self) -> Sequence[tuple[str, dict[str, Any]]]:
        return [(each.text, _finding_data(each)) for each in dra.inconsistencies(self._claims)]

    def pods(self) -> Collection[str]:
        return {uid for claim in self._claims for uid in claim.pods}

    def names_in(self, node: Node) -> Names:
        return node.names_of_claims(self._claims)

    def names_of(self, pods: Sequence[Pod]) -> Names:
        from devicemanager.snapshot.names import from_claims

        return from_claims(self._claims, pods)

    def repaired(self) -> Edited:
        repair = dra.repair(self.data)
        # Read from the repaired bytes, so that the command shows what it would write.
        contents = ClaimContents.read(repair.data)
        return Edited(repair.data, contents, repair.problems, repair.dropped, repair.notes)

    def without_pods(self, uids: Collection[str]) -> Edited:
        state = dra.without_pods(self.found.state, uids)
        # In the format of the file: kubelets before 1.35 do not have the field ShareID.
        data = dra.dumps(state, share_ids=self.found.share_ids)
        dropped = tuple(
            f"pod {uid} of claim {claim.namespace}/{claim.name}"
            for claim in self._claims
            for uid in sorted(claim.pods & set(uids))
        )
        return Edited(data, ClaimContents.read(data), dropped=dropped, notes=(_NOT_UNPREPARED,))


_NOT_UNPREPARED = (
    "no driver is called: claims that are removed with their last pod stay prepared in their "
    "drivers"
)


def _title(claim: ClaimState) -> str:
    return clean(f"{claim.namespace}/{claim.name}")


def _pod(uid: str, names: Names) -> str:
    name = names.get(uid)
    return clean(uid if name is None else f"{name} ({uid})")


def _driver_lines(driver: str, state: DriverState) -> Iterator[str]:
    skips = f", needs no {' or '.join(state.skips)}" if state.skips else ""
    if state.devices is None:
        yield clean(f"  driver {driver}{skips}: no devices yet")
    for device in state.devices or ():
        yield clean(f"  driver {driver}{skips}: {_device_text(device)}")


def _device_text(device: Device) -> str:
    share = f" share {device.share_id}" if device.share_id is not None else ""
    requests = f" for {', '.join(device.requests)}" if device.requests else ""
    cdi = f": {', '.join(device.cdi)}" if device.cdi else ""
    return f"{device.pool}/{device.device}{share}{requests}{cdi}"


def _parts(claim: ClaimState) -> Iterator[str]:
    yield clean(f"UID {claim.uid}")
    yield f"pods {', '.join(map(clean, sorted(claim.pods))) or 'none'}"
    for driver, state in claim.drivers.items():
        # Without the indentation of ``show``, because the parts of a fact are joined to one line.
        yield from (line.strip() for line in _driver_lines(driver, state))


def _claim_data(claim: ClaimState, names: Names) -> dict[str, Any]:
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "pods": [{"uid": uid, "pod": names.get(uid)} for uid in sorted(claim.pods)],
        "drivers": [
            {
                "driver": driver,
                "devices": None
                if state.devices is None
                else [_device_data(device) for device in state.devices],
                "skip_node_operations": list(state.skips),
            }
            for driver, state in claim.drivers.items()
        ],
    }


def _device_data(device: Device) -> dict[str, Any]:
    return {
        "pool": device.pool,
        "device": device.device,
        "share_id": device.share_id,
        "requests": list(device.requests or ()),
        "cdi_devices": list(device.cdi or ()),
    }


def _finding_data(finding: dra.Finding) -> dict[str, Any]:
    return {"kind": finding.kind.value, "message": finding.text, "claims": list(finding.claims)}
