"""Simulate a power failure after every file operation on the checkpoint's directory.

The file operations of a kubelet under load are recorded (``recording``, ``load``). Each prefix
of them is replayed on a model of a disk that loses unflushed data (``disk``). The remaining
files are compared with the promises of the durability level (``promises``).
"""
