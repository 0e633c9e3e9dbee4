"""The decisions of structured claims: which devices a claim gets, and who holds what.

Pure: no API types, files, clock or threads. A front end turns its objects into an
``Inventory`` and ``Claim`` values, calls ``solve``, and commits the answer to a ``Ledger``.
All amounts are integers in nano units; all sets of devices are integers over the numbers
that the inventory gives (``devicemanager.core.bitset``).
"""
