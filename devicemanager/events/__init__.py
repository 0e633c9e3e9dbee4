"""Everything that happens in a kubelet, as events and calls.

``stream`` has one ``EventStream`` per kubelet. The kubelet publishes registrations, device lists,
admissions, checkpoint writes and errors to the stream. The log, the waits of tests, the live views
and the metrics read it. ``calls`` records every RPC between the kubelet and its plugins.

Invariants:

* Events and calls are immutable and numbered. A call has the number of the latest event at its
  end, so events and calls can be merged into one order.
* Publishing never blocks on a reader. Callbacks run on the publishing thread, without locks of
  the kubelet, and their exceptions do not affect the publisher.
* Memory is bounded; the oldest entries are dropped first.

Start reading with ``EventKind`` in ``stream``, which lists everything that can happen.
"""
