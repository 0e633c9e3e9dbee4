"""Fuzz everything that parses input from others: files, messages, requests, archives.

A target is a function decorated with ``model.target``, in ``files`` or ``messages``. It returns
a reader of bytes. The reader may reject an input only
with the errors that the code under test documents, in one line; any other exception is a
finding, and so is a hang or a jump in memory.

``__main__`` starts a ``worker`` for each target, in which the coverage-guided fuzzer mutates the
inputs of the directory ``corpus``. The tests replay the same inputs without a fuzzer.
"""
