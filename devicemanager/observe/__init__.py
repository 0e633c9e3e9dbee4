"""Show a node to people and programs: views, metrics, the terminal and HTTP.

Theory of operation.

In:  a ``MockKubelet``, the PodResources responses of any kubelet, or the nodes of a cluster.
     A ``MockKubelet`` is read through its public snapshots, events and calls.
Out: ``view``      immutable values that describe a node or a cluster;
     ``terminal``  a live view of these values on a terminal;
     ``web``       the kubelet's HTTP endpoints and the live page;
     ``metrics``   the kubelet's Prometheus metrics.

Invariants:
* This package makes no decisions about devices. It changes a node only for the buttons of the
  live page, which require the token of the control API.
* An admission never waits for an observer. Events and calls only set a flag or append to a
  queue. An observer does its work on its own thread.
* The cost of a refresh depends on the number of changes, not on the size of the node. Unchanged
  parts of a view remain the same objects, so differences are found by identity.
* Names and messages from plugins and manifests are untrusted. They cannot control the
  terminal and cannot become markup in a browser.

Start reading at ``view.values``, then ``view.kubelet``, which builds these values.
"""
