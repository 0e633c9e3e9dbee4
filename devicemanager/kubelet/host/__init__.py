"""What the machine is: its NUMA nodes and its PCI devices, as sysfs shows them.

What belongs here: reading. What never does: state.
"""
