"""Mutation testing: does a test fail when a line is wrong?

Why a script: mutmut forks a process that has gRPC loaded, which gRPC does not survive, and
leaves module-level code alone; cosmic-ray runs the same tests for every mutant.
"""
