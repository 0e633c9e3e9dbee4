"""Container settings as a container runtime would apply them: CDI and OCI.

Run options are the container settings that the kubelet sends to the container runtime, such as
environment variables, mounts and devices. This package converts them to a part of an OCI
configuration, as a container runtime does. ``cdi`` finds the edits for CDI device names in
specification files. ``oci`` renders run options and these edits.

The package reads device nodes and specification files of the host. It runs no programs and changes
nothing. Start reading with ``oci.render``.
"""
