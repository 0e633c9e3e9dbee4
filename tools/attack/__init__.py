"""Attack a kubelet in 88 ways, and measure what each attack costs the kubelet and a good plugin.

Theory of operation. Most attacks have three processes: the kubelet (``node``), a well-behaved
plugin (``tools.harness.plugin``) and the attacker. ``beside`` starts them. While the attacker
works, a probe registers the good plugin and admits pods for it, again and again. Afterwards the
kubelet must still work, must not have logged an unexpected error, and must have released most of
what it used.

The other attacks start ``devicemanager run`` (``running``) in a prepared directory, or with too
few resources: it must serve, or exit with a one-line error.

In:  the modules named in ``registry``; each registers its attacks when it is imported.
Out: for each attack an ``Outcome`` with the worst times, the peak of memory, threads and
     descriptors, and broken promises. ``model.broken`` compares it with the attack's limits.

The attacker is a separate process with lower priority, because the attack is on the kubelet
and not on the CPUs of the machine. To read one attack, find its name, then read ``beside``.
"""
