"""CEL expressions about one device: constraints of structured claims, and DRA selectors.

In:  the text of an expression; the attributes of a device.
Out: a compiled expression, with the names of the attributes that it reads. The value of the
     expression for a device is True if the device matches. Compilation and evaluation can raise an
     error.

``v1alpha1`` compiles the constraints of structured claims, which are objects of the API
``devmgmtproto.k8s.io``, the prototype of DRA. ``dra`` compiles DRA selectors. Both use one engine
with the language and the cost limits of Kubernetes:

* ``parsing`` parses an expression with the CEL team's library; ``macros`` expands the macros that
  this library lacks.
* ``checker`` and ``validating`` find type errors and invalid constants, with ``types`` and
  ``declarations``.
* ``estimate`` computes the worst-case cost, which the API server limits.
* ``planning`` turns the syntax tree of an expression into a program of ``steps``, with
  ``functions`` and ``operators``.
* ``running`` evaluates a program and counts its cost (``costs``, ``limits``).

Any user can write an expression, so no expression may hang or crash the kubelet. Every evaluation
has a cost limit. The cost that Kubernetes computes does not include everything that takes time or
memory, so ``limits`` has two more limits. Start reading with ``compiling``.
"""

from devicemanager.claims.cel.v1alpha1 import Expression, compile_v1alpha1

__all__ = ["Expression", "compile_v1alpha1"]
