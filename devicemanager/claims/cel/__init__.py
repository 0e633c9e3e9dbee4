"""CEL expressions about one device: constraints of structured claims, and selectors of DRA.

In:  the text of an expression; the attributes of a device.
Out: a compiled expression with the names of the attributes that it reads, and its answer for a
     device; or an error at compilation or evaluation.

``v1alpha1`` has the constraints of structured claims, and ``dra`` the selectors of DRA. Both use
one engine, which follows Kubernetes' and has its limits of cost:

* ``parsing`` parses a text with the CEL team's library, ``macros`` expands further macros.
* ``checker`` and ``validating`` find errors, with ``types`` and ``declarations``.
* ``estimate`` computes the cost that the API server checks.
* ``running`` evaluates, with ``functions``, and counts the cost (``costs``, ``limits``).

Any user can write an expression, so none may hang or crash the kubelet: every evaluation has a
limit of cost and of work. Start with ``compiling``.
"""

from devicemanager.claims.cel.v1alpha1 import Expression, compile_v1alpha1

__all__ = ["Expression", "compile_v1alpha1"]
