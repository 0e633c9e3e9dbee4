"""Read the host's NUMA nodes (``numa``) and PCI devices (``pci``) from sysfs.

``numa`` can also get NUMA nodes from a file or from a list of node IDs. Nothing is stored, and
nothing on the host is changed. Start reading with ``numa.read_numa`` and ``pci.find``.
"""
