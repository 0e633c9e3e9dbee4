"""Convert between protobuf messages of the device plugin API and the core's values.

In:  bytes that a plugin sent, or that a checkpoint stores.
Out: ``Columns`` of devices (``lists``), ``ContainerSettings`` (``settings``) and messages made of
     settings; or a ``WireError``.

Everything that a plugin sends is untrusted. Bytes that are not a message, or that contain
something no container can get, become one typed error with a one-line text. Nothing else leaves
this package, and it has no state except a reader's previous list.

Start reading with ``settings``. ``lists`` is the same for device lists, made fast: a list can
have 100,000 devices, and nearly all of them are as in the list before.
"""
