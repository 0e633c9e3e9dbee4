"""``make demo``: show the main features and check each claim.

Input:  the example manifests in ``examples``.
Output: the steps as text; the exit status is 0 if all checks passed.

``story`` has the acts, ``acts`` those with a separate kubelet; ``processes`` starts kubelets
and plugins and reads their output.

Invariant: each statement after "checked:" was verified; the first that is wrong ends the demo.

Start with ``story.Demo.play``.
"""
