"""Common parts of the long tests: the tools attack, damage, fuzz, kill, power, soak and stress.

Theory of operation. Each of these tools puts stress on a kubelet, or on code that reads files and
messages, and then checks promises that must hold. A tool contains only its actions and its
promises. This package has everything else:

* ``command``: options, the choice of cases by name, the verdict and the exit status.
* ``process``: helper processes that respond to requests. A tool can break one process and observe
  it from another one.
* ``plugin``: a well-behaved device plugin in a helper process.
* ``node``: a kubelet in this process with that plugin, for tools that call it directly.
* ``model``: the allocations that the kubelet has confirmed, and a comparison with the disk.
* ``usage``: the use of memory, threads, descriptors and objects: peaks, growth, and leftovers.

In:  arguments of the command line; files from ``tests``.
Out: lines on standard output. The last line is the verdict. Exit status 0 if every promise was
     kept, 1 if one was broken, 2 for wrong usage.

Invariants:
* Random choices depend only on a seed, which the verdict names, so that a failure can be repeated.
  Exceptions are the fuzzer, and soak, which chooses the next pod to terminate without a seed.
* A case that could not be carried out is a failure, because it proves nothing.
* Times only decide whether a case hangs or exceeds its limit. Nothing else depends on the speed of
  the machine.
* A helper process exits when its standard input is closed. So it exits with the tool, even if the
  tool is killed.

Start with ``__main__`` of ``tools.soak``, the smallest tool, then read ``command`` and ``model``.
"""
