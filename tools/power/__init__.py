"""Power loss: what the checkpoint's directory may look like afterwards, at every moment.

The file operations of a kubelet are recorded. Every prefix of them is replayed on a model
of a disk that loses what was not flushed, and what is left is held against what the level
of durability promises.
"""
