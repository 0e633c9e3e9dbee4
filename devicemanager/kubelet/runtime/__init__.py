"""Container settings as a container runtime would apply them: CDI and OCI.

The kubelet's work ends with the run options that it sends to the runtime. This package shows
the next step, without a runtime: ``cdi`` resolves CDI device names through specification files,
and ``oci`` renders run options and CDI edits to part of an OCI configuration.

It converts values. It reads device nodes and specification files of the host, runs nothing and
changes nothing. Start reading with ``oci.render``.
"""
