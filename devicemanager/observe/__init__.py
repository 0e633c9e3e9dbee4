"""Show a node to people and programs: views, metrics, the terminal and HTTP.

Theory of operation.

In:  a ``MockKubelet``, the PodResources responses of any kubelet, or the nodes of a cluster.
     They are read through the kubelet's public snapshots, events and calls.
Out: ``view``      immutable values that describe a node or a cluster;
     ``terminal``  these values as rows and columns, live on a terminal;
     ``web``       the kubelet's HTTP endpoints and the live page;
     ``metrics``   the kubelet's Prometheus metrics.

Invariants:
* Nothing here decides about devices or changes a node. The live page changes one only
  through the control API and its token.
* An admission never waits for an observer. Events and calls only set a flag or append to a
  queue; the work happens on the observer's own thread.
* Cost depends on what changed, not on the size of the node: unchanged parts of a view stay
  the same objects, so differences are found by identity.
* Names and messages from plugins and manifests are untrusted. They cannot control the
  terminal and cannot become markup in a browser.

Start reading at ``view.values``, then ``view.kubelet``, which builds these values.
"""
