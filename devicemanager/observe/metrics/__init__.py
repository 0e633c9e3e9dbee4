"""Prometheus metrics of a mock kubelet, with the names that the simulated kubelet version uses.

The package needs the pip extra ``http``.

Theory of operation. Counters are derived from events and calls; gauges are read on a scrape.

In:  the event stream, the call log and the telemetry of a ``MockKubelet``; or only
     the telemetry of a ``NodeInfo``, which gives only gauges.
Out: Prometheus text, or a ``CollectorRegistry`` for users of ``prometheus_client``.

``reader`` subscribes to events and calls. The thread that publishes an event or a call only appends
it to a queue. On a scrape, or when the queue has 1000 items, ``tally`` counts these items.
``families`` converts the counts to metrics of the kubelet's version, ``exposition`` renders metrics
as text, and ``kubelet`` connects these modules.

Invariants:
* An admission takes no lock of this package, so it does not wait for a scrape. The only exception:
  while the HTTP server is stopped, the thread that appends item 1000 also counts the queued items.
* Counts start at zero with each kubelet instance, as with a restarted kubelet process.
* The number of label values is limited, although plugins choose resource names.

Start reading at ``kubelet``.
"""
