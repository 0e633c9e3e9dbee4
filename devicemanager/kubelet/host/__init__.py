"""The machine's NUMA nodes (``numa``) and PCI devices (``pci``).

Both are read from sysfs, NUMA nodes also from a file or from a flag. Input is a directory, a
file or a text, output are values of the core, and errors name the place. Nothing is stored, and
nothing on the host is changed. Start reading with ``numa.read_numa`` and ``pci.find``.
"""
