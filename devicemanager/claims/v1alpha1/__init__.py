"""The API ``devmgmtproto.k8s.io/v1alpha1``: its objects, their validation and their meaning.

The prototype (April 2024) from which ``resource.k8s.io`` grew. It had types and comments but
no allocator, so their meaning here follows the comments, and DRA where they are silent.

``objects`` has the types, ``reading`` and ``writing`` convert them from and to documents, and
``validate`` has the rules. ``convert`` and ``resolve`` translate to and from ``claims.core``,
which knows no API: pools into an inventory, claims into requests, and solutions into a status.
"""
