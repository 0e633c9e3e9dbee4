"""Fuzz all code that parses untrusted input: files, messages, requests and archives.

A target is a function in ``files`` or ``messages`` with the decorator ``model.target``. It returns
a function that reads an input. This function may reject an input only with the documented errors of
the code under test, each with a one-line message. Any other exception is a finding, and so is a
hang or a sudden growth of memory.

``__main__`` starts a ``worker`` for each target, in which the coverage-guided fuzzer mutates the
inputs of the directory ``corpus``. The tests replay the same inputs without a fuzzer.
"""
