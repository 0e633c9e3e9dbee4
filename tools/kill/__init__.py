"""Kill a kubelet under load repeatedly, and check the files that each kill leaves on disk.

``node`` is the process that is killed. It reports each result before it continues. ``claims``
creates the claims of its pods and reads the state file of claims. ``__main__`` kills the process
and compares the reports with the files. Then the next kubelet starts in the same directory. Every
pod must have the same devices as before.
"""
