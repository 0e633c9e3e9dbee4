"""Simulate a power failure after every file operation on the checkpoint's directory.

``__main__`` puts a kubelet under load; ``recording`` records its file operations. Each prefix of
them is replayed on ``disk``, a model of a disk that loses unflushed data. What remains is
compared with the promises of the durability level.
"""
