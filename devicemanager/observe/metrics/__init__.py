"""Metrics of a mock kubelet, with the names of the kubelet's version. Needs the extra ``http``.

Theory of operation. Counters are derived from events and calls; gauges are read on a scrape.

In:  the event stream, the call log and the telemetry of a ``MockKubelet`` (or of a
     ``NodeInfo``, for gauges only).
Out: Prometheus text, or a ``CollectorRegistry`` for users of ``prometheus_client``.

``reader`` subscribes to events and calls. The publishing thread only appends to a queue;
``tally`` adds the queue up when a scrape or a full queue asks for it. ``families`` turns the
numbers into metrics of the version, ``exposition`` these into text, and ``kubelet`` joins them.

Invariants:
* An admission does not wait for a scrape: it takes no lock of this package. Only if the queue is
  full and no server runs, the publishing thread counts itself.
* Numbers start at zero with each kubelet instance, as with a restarted kubelet process.
* The number of label values is bounded, although plugins choose resource names.

Start reading at ``kubelet``.
"""
