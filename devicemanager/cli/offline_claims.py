"""Structured claims of a node, read from files with objects and from a state file with allocations.

A *structured claim* is a request for devices in the API ``devmgmtproto.k8s.io``, the predecessor of
``resource.k8s.io``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.ledger import Ledger
from devicemanager.claims.errors import ClaimsError, TryAgain
from devicemanager.claims.explanation import Explanation
from devicemanager.claims.files import MAX_FILE, in_order, read_paths
from devicemanager.claims.simulated import SimulatedHardware, simulated_classes
from devicemanager.claims.state_file import ClaimRecord, ClaimsState, StateCorrupt, parse_state
from devicemanager.claims.store import ObjectStore
from devicemanager.claims.v1alpha1 import objects as api
from devicemanager.cli.files import given_contents
from devicemanager.cli.options import CommandError
from devicemanager.core.pods import Pod
from devicemanager.core.rejection import rejected_by_allocation
from devicemanager.io.safe_read import FileRejected, read_regular
from devicemanager.kubelet.pods.admission import Admission

_NODE = "mock"
"""Name of the node if no pool names a node."""
_MAX_STATE = 64 << 20


@attrs.frozen
class OfflineClaims:
    """Structured claims (API ``devmgmtproto.k8s.io``) of one node, read from files.

    ``records`` has the entries of the state file, which are the allocated claims. Each key is the
    ``namespace/name`` of the claim.
    """

    allocator: Allocator
    node: str
    records: dict[str, ClaimRecord]
    given: int = 0
    """The number of objects in the files."""
    _new: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The claims allocated for each pod, by UID. They are released if the pod is not admitted."""

    @classmethod
    def load(
        cls,
        paths: Sequence[str],
        state: str | None = None,
        node: str | None = None,
        hardware: SimulatedHardware | None = None,
    ) -> OfflineClaims:
        """Read objects from files, directories or standard input (``-``), and allocations from a
        state file.

        Raises CommandError and ClaimsError; after an error nothing is loaded.
        """
        found = read_state(state) if state is not None else ClaimsState()
        store = ObjectStore()
        allocator = Allocator(
            store,
            # The allocations come before the objects: a file may not change the spec of an
            # allocated claim.
            ledger=Ledger.restore(found.ledger()),
            allocated=[record.claim for record in found.records],
        )
        contents = {Path(name): data for name, data in given_contents(paths, MAX_FILE).items()}
        files = read_paths(map(Path, paths), contents)
        # All files are read first, because a claim can refer to a class in a later file.
        objects = [each for file in files for each in file.objects]
        given = len(objects)
        if hardware is not None:
            objects += [*hardware.pools(node or _NODE), *simulated_classes()]
        for each in in_order(objects):
            _put(allocator, each)
        records = {record.claim.id: record for record in found.records}
        return cls(allocator, _node(store, node), records, given)

    def ids(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the given claim names as ``namespace/name``; the default namespace is ``default``.

        Raises ClaimsError for an unknown claim.
        """
        found = tuple([name if "/" in name else f"default/{name}" for name in names])
        for each in found:
            self.allocator.claim(each)
        return found

    def explain_pod(self, pod: Pod) -> tuple[Explanation | None, Admission | None]:
        """Allocate a pod's claims. Return a pair: the explanation, and the pod's rejection.

        The explanation has the devices of the claims, or the reasons why the claims do not fit. It
        is None if a claim can never be allocated. The rejection is a failed ``Admission``. It is
        None if all claims fit.
        """
        wanted = [name for name in pod.resource_claims.values() if name is not None]
        # Several containers of a pod can use the same claim, which is allocated once.
        ids = tuple(dict.fromkeys(f"{pod.namespace}/{name}" for name in wanted))
        explanation = None
        try:
            explanation = self.allocator.explain(ids, self.node)
            self._new[pod.uid] = self.allocator.allocate(ids, self.node)
        # As in the kubelet, claims that do not fit reject the pod.
        except ClaimsError as error:
            rejected = rejected_by_allocation(error)
            undecided = isinstance(error, TryAgain)
            return explanation, Admission(
                pod, False, rejected.reason, rejected.message, undecided=undecided
            )
        return explanation, None

    def end(self, pod: Pod) -> None:
        """Release the claims that were allocated for a pod."""
        self.allocator.release(*self._new.pop(pod.uid, ()))

    def phase(self, claim: str) -> str:
        """Return the phase of a claim: ``Pending``, ``Allocated`` or ``Reserved``."""
        if claim not in self.records:
            return "Pending"
        return "Reserved" if self.records[claim].users else "Allocated"


def read_state(text: str) -> ClaimsState:
    """Read a state file of allocated claims. Raises CommandError."""
    try:
        # Path.read_bytes would block on a pipe without a writer.
        return parse_state(read_regular(text, _MAX_STATE))
    except OSError as error:
        raise CommandError(f"{text}: {error.strerror}") from None
    except FileRejected as error:
        raise CommandError(f"{text} is {error}") from None
    except StateCorrupt as error:
        raise CommandError(f"{text}: {error}") from None


def _put(allocator: Allocator, found: api.Object) -> None:
    if isinstance(found, api.DevicePool):
        allocator.store.publish(found)
    elif isinstance(found, api.DeviceClass):
        allocator.store.define(found)
    elif isinstance(found, api.DeviceClaim):
        allocator.submit(found)
    else:
        allocator.store.configure(found)


def _node(store: ObjectStore, name: str | None) -> str:
    nodes = sorted({pool.node_name for pool in store.pools.values()} - {""})
    if name is not None:
        return name
    # A pool belongs to one node, and allocation is per node.
    if len(nodes) > 1:
        raise CommandError(
            f"the pools belong to several nodes: use --node with one of {', '.join(nodes)}"
        )
    return nodes[0] if nodes else _NODE


def missing_references(allocator: Allocator) -> Iterator[str]:
    """Yield a line for each DeviceClass that a claim names and no file has. Also yield a line for
    each device type that a claim requests and no DeviceClass has."""
    # These are notes, not errors, because the class may be defined elsewhere.
    classes = allocator.store.classes
    for name, claim in sorted(allocator.claims.items()):
        details = [detail for instance in claim.claims for detail in instance.details()]
        for wanted in sorted({detail.device_class for detail in details} - {"", *classes}):
            yield (
                f'DeviceClaim "{name}" names DeviceClass "{wanted}", which no file has:'
                " add the class"
            )
        types = {each.device_type for each in classes.values() if not each.admin_access}
        requested = {detail.device_type for detail in details if not detail.device_class}
        for wanted in sorted(requested - types):
            yield (
                f'DeviceClaim "{name}" names device type "{wanted}", which no class has: '
                "add a class"
            )
