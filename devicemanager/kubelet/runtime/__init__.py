"""What a container runtime would make of a container's settings: CDI and OCI.

What belongs here: conversions of values. What never does: running anything.
"""
