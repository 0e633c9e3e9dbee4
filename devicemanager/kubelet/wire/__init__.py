"""Convert between protobuf messages of the device plugin API and the core's values.

In:  bytes that a plugin sent, or that a checkpoint stores.
Out: ``Columns`` of devices (``lists``), ``ContainerSettings`` and messages (``settings``), or a
     ``WireError``.

Everything that a plugin sends is untrusted. Bytes that cannot be decoded, and settings that no
container can have, raise ``WireError`` with a text of one line. The package has no state, except
that a ``ListReader`` stores the previous list of its plugin.

Start reading with ``settings``. ``lists`` decodes device lists. It is optimized for lists of up to
100,000 devices, nearly all of which are the same as in the previous list.
"""
