"""Readers of the host's NUMA nodes (``numa``) and PCI devices (``pci``).

Both modules read sysfs; ``numa`` also reads a file or the value of a flag. Nothing is stored, and
nothing on the host is changed. Start reading with ``numa.read_numa`` and ``pci.find``.
"""
