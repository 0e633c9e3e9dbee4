"""Functions that expressions can call, one module for each of Kubernetes' CEL libraries.

``IMPLEMENTATIONS`` of each module maps the ID of an overload (``declarations``) to the function
that implements it. A function gets arguments of the declared types. It returns a value or raises
CelError, and has no state or side effects.
"""
