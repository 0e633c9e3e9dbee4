"""``make demo``: show the main features and check each claim.

Input:  the example manifests in ``examples``.
Output: the steps as text; the exit status is 0 if all checks passed.

The demo has several acts. ``story`` has those with the first kubelet, ``acts`` those with another
one. ``processes`` starts kubelets and plugins and reads their output.

Invariant: each statement after "checked:" was verified. The first false statement ends the demo.

Start with ``story.Demo.play``.
"""
