"""The API ``devmgmtproto.k8s.io/v1alpha1``: its objects, their validation and their meaning.

This API is the prototype (April 2024) of ``resource.k8s.io``. The prototype had types and
comments but no allocator. In this package, the objects mean what these comments say. Where the
comments say nothing, the objects mean the same as in dynamic resource allocation (DRA).

``objects`` has the types, ``reading`` and ``writing`` convert them from and to documents, and
``validate`` has the rules. ``convert`` and ``resolve`` translate between these objects and
``claims.core``: pools into an inventory, claims into requests, and solutions into a status.
"""
