"""Fuzzing of everything that reads what others wrote.

A coverage-guided fuzzer mutates the inputs of a small corpus, which is kept here and is
replayed by the tests. What is declared as an error is no finding; another exception, a hang
and a jump in memory are.
"""
