"""Functions that expressions can call, one module for each of Kubernetes' CEL libraries.

Each module has ``IMPLEMENTATIONS``: overload (``declarations``) to the function that implements
it. A function gets the values of the arguments, which have the declared types, and returns a
value or raises CelError. None of them has state or side effects.
"""
