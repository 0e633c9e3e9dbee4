"""The live page: the node as a picture in a browser, with buttons for what can be done with it.

What belongs here: the page's files, the document that it shows and what changes in it, the
stream of both. What never does: looking at a node on the way of an admission, and anything of
others that a browser could take for markup or script.
"""

from __future__ import annotations

from devicemanager.observe.web.page.routes import routes

__all__ = ["routes"]
