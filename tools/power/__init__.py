"""Simulate a power failure after every file operation on the checkpoint's directory.

``__main__`` puts a kubelet under load, and ``recording`` records its file operations. The first
operation, the first two operations, and so on are replayed on ``disk``, a model of a disk that
loses unflushed data. The remaining files are compared with the promises of the durability level.
"""
