"""Container settings as a container runtime would apply them: CDI and OCI.

The kubelet sends run options to the container runtime. This package shows what a runtime makes of
them, without a runtime: ``cdi`` resolves CDI device names through specification files, and ``oci``
renders run options and CDI edits to a part of an OCI configuration.

The package reads device nodes and specification files of the host. It runs no programs and changes
nothing. Start reading with ``oci.render``.
"""
