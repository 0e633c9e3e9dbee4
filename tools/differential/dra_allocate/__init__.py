"""Compare ``devicemanager.claims.dra`` with the structured allocator in random problems.

Input:  a release, a seed and a number of problems. Output: the problems in which the results
differ.

``problems`` makes them. ``running`` solves them with both allocators: the real one is a Go program
from ``go``.
"""
