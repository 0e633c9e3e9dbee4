"""Replay recorded vectors through the product's code and report differences.

Input:  a file of vectors, such as checkpoints, admission scenarios or structured claims.
Output: the differences of each vector, and ``N of M agree``.

Each format has a module, such as ``checkpoint``. ``report`` reads files, compares values and
prints.

Invariants:
* The replays only translate formats. They contain no behaviour of the product.
* No vector is skipped or treated specially to make it agree.

Start with ``__main__``, then ``checkpoint``, the simplest format.
"""
