"""The live page: the node in a browser, with buttons for the control API.

Theory of operation. Any number of pages share one view of the node.

In:  the kubelet's events and calls, which only set a flag; its view (``observe.view``) and
     faults, read on a worker thread soon after.
Out: the static files, and a stream of server-sent events: first the whole document, then
     changes. A reconnecting page resumes after the last change that it has received.

``updates`` decides when to read the node and gives each page its messages. ``document`` turns
the view into tables of JSON rows, ``deltas`` compares two documents, ``frames`` encodes changes
and stores the latest for pages that reconnect. ``routes`` has the HTTP side, and the requests
that only the page makes.

Invariants:
* Pages together use about 3 % of a CPU, however many are open and however much happens. With
  no page open, the node is not read at all.
* An admission is never delayed: it sets a flag and at most wakes the event loop once.
* Names and messages from plugins and manifests never become markup, script or requests: the
  page uses only text nodes, and the headers forbid everything else.
* A change requires the token, which is in the URL's fragment and therefore not in any log.

Start reading at ``updates``; in the browser, at ``static/main.js``.
"""

from __future__ import annotations

from devicemanager.observe.web.page.routes import routes

__all__ = ["routes"]
