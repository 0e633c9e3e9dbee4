"""Run long tests of devicemanager: what the tools attack, damage, fuzz, kill, power, soak and
stress have in common.

Theory of operation. Each of these tools makes life hard for a kubelet, or for code that reads
files and messages, and then checks promises that must hold. A tool contains only what it does
and what it promises. The rest is here:

* ``command``: options, the choice of cases by name, the verdict and the exit status.
* ``process``: helper processes. They answer requests, so a tool can break one process and
  still observe it from another.
* ``plugin``: a well-behaved device plugin in a helper process.
* ``node``: a kubelet in this process with that plugin, for tools that call it directly.
* ``model``: what the kubelet has confirmed to its callers, and a comparison with the disk.
* ``usage``: memory, threads, descriptors and objects: peaks, growth, and leftovers.

In:  arguments of the command line; files from ``tests``.
Out: lines on standard output; the last one is the verdict. Exit status 0 if every promise was
     kept, 1 if one was broken, 2 for wrong usage.

Invariants:
* Random choices follow from a seed, which the verdict names, so that a failure can be repeated.
  Exceptions: soak, which only chooses the next pod to terminate, and the fuzzer.
* A case that could not be carried out is a failure: it has proved nothing.
* Limits on time are deadlines of a hang, or limits of a case. Nothing else depends on the speed
  of the machine.
* A helper process ends with the tool, also if that is killed: it ends when its input ends.

Start with ``__main__`` of ``tools.soak``, the smallest tool, then read ``command`` and ``model``.
"""
