"""Decide which devices claims get, and record the allocations.

Theory of operation. This package is pure: no API types, files, clocks, locks or threads.
A front end (``v1alpha1``) translates its objects into the values of ``model``, so another
API, such as ``resource.k8s.io``, can use the same search.

In:  an ``Inventory`` (the published pools of one node), a ``Ledger`` (the allocations),
     and the claims of one call with their requests (``model.Claim``).
Out: a ``Solution``, ``Infeasible`` with the reasons, ``Undecided`` if the search ran out of
     steps, or an ``Error`` for a claim that can never be allocated as written.

Terms, with their counterparts in ``resource.k8s.io`` (DRA):

* budget and charge: shared counters of a pool, and the amounts that a device consumes of these
  counters while it is in use;
* headroom: the unused amounts of a budget;
* capacity: a resource of a device that several claims share in blocks (consumable capacity);
* request and alternative: a device request and its ``firstAvailable`` entries;
* slot: a request together with the alternative that the search tries for it.

Invariants:

* A device is allocated to one claim exclusively, or shared by any number of claims.
* A new allocation never makes charges exceed a budget. Republishing a pool changes no
  allocation, so the headroom of a pool can become negative.
* Equal arguments give equal outcomes: limits count steps, not time.
* ``solve`` changes nothing. ``Ledger.commit`` checks a solution again and records it.

Amounts are integers in nano-units. Sets of devices are integers whose bits are the device
numbers of the inventory (``devicemanager.core.bitset``).

Start reading with ``solve``, which describes the layers of the search.
"""
