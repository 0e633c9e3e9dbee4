"""Attack a kubelet in many ways, and measure the effect on the kubelet and on a good plugin.

Theory of operation. Most attacks have three processes: the kubelet (``node``), a well-behaved
plugin (``tools.harness.plugin``) and the attacker. ``beside`` starts them. While the attacker runs,
a probe repeatedly registers the good plugin and admits pods with its devices. After the attack, the
kubelet must still work, must not have logged an unexpected error, and must have released most of
the memory, threads and descriptors that it used.

The other attacks start ``devicemanager run`` (``running``) in a prepared directory, or with too
little memory or too few descriptors. The command must serve, or exit with a one-line error.

In:  the modules named in ``registry``; each registers its attacks when it is imported.
Out: for each attack an ``Outcome`` with the longest times, the peak of memory, threads and
     descriptors, and broken promises. ``model.broken`` compares the outcome with the limits.

The attacker is a separate process with lower priority, because it must attack the kubelet and not
use up the CPUs of the machine. To understand one attack, search for its name, then read ``beside``.
"""
