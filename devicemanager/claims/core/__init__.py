"""Decide which devices claims get, and record the allocations.

Theory of operation. This package is pure: no API types, files, clocks, locks or threads.
A front end (``v1alpha1``) translates its objects into the values of ``model``, so another
API, such as ``resource.k8s.io``, can use the same search.

In:  an ``Inventory`` (the published pools of one node), a ``Ledger`` (the allocations),
     and the claims to allocate together, with their requests (``model.Claim``).
Out: a ``Solution``, ``Infeasible`` with the reasons, or ``Undecided`` if the search ran out of
     steps. An ``Error`` for a claim that can never be allocated as written.

Terms of the inventory (in parentheses: the term of ``resource.k8s.io``):

* pool: the devices that a driver publishes together, under one name (resource pool).
* budget: a resource of a pool that its devices consume while in use (shared counter).
* charge: the amount that one device in use consumes of each budget of its pool.
* headroom: a budget minus the charges of the pool's devices in use.
* capacity: a resource of a device that is divided among the claims that share the device
  (consumable capacity).
* block: the smallest amount of a capacity that can be allocated (step of a request policy).
* unit: amounts of budgets and capacities are integers. Their unit is the nano-unit: the quantity
  ``1`` is 10^9 nano-units.
* free amount: a capacity minus the amounts that are allocated to claims.
* set of devices: an integer, whose bit N stands for device N of the inventory
  (``devicemanager.core.bitset``).

Terms of the search:

* request: one entry of a claim, which needs one or more devices (device request).
* alternative: one way to satisfy a request; the user writes alternatives in order of
  preference (``firstAvailable``).
* choice: one alternative of one request, given by three indexes (``problem.Choice``).
* slot: a request in the search, with the alternative chosen for it. The search fills each slot
  with devices.
* place: an index into a list, usually a list of slots.
* pick: one device that the search has tentatively put into a slot.
* constraint: an attribute that must have the same value for all devices of certain slots
  (``matchAttribute``). That value is the matched value.
* demand: a set of devices, and how many devices are needed from this set.
* answer: devices for each slot that satisfy all constraints and budgets.
* documented order: the order of answers, which users can rely on (``first_fit``).

Invariants:

* A device is allocated to one claim exclusively, or shared by any number of claims.
* A new allocation never makes charges exceed a budget. Republishing a pool changes no
  allocation, so the headroom of a pool can become negative.
* Equal arguments give equal outcomes: limits count steps, not time.
* ``solve`` changes nothing. ``Ledger.commit`` checks a solution again and records it.

Start reading with ``solve``, which describes the layers of the search.
"""
