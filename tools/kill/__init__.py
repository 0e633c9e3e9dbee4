"""Kills a kubelet over and over under load, and looks at what each death left on disk.

``node`` is the process that dies; ``toll`` keeps what it answered and compares that with
its checkpoint; ``__main__`` is the command.
"""
