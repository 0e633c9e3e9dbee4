"""The live page: the node in a browser, with buttons for the control API.

Theory of operation. All open pages share one view of the node.

In:  the kubelet's events and calls, which only set a flag; the view of the kubelet
     (``observe.view``) and the faults that are set, which a worker thread reads soon after.
Out: the static files, and a stream of server-sent events: first the whole document, then
     changes. A page that reconnects resumes after the last change that it received.

``updates`` decides when to read the node, and yields the messages to each page. ``document``
converts the view to tables of JSON rows. ``deltas`` compares two documents. ``frames`` encodes
changes, and stores the latest for pages that reconnect. ``routes`` has the HTTP routes, including
requests that only the page sends.

Invariants:
* All pages together use at most about 3 % of a CPU, regardless of the number of pages and events.
  The node is not read while no page is open.
* Admissions are not delayed: an event only sets a flag, and wakes the event loop at most once.
* Names and messages from plugins and manifests never become markup, script or requests: the
  page uses only text nodes, and the response headers forbid everything else.
* A change requires the token. The token is in the fragment of the page's URL, which is never
  logged.

Start reading at ``updates``; in the browser, at ``static/main.js``.
"""

from __future__ import annotations

from devicemanager.observe.web.page.routes import routes

__all__ = ["routes"]
