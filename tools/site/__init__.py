"""Build the documentation as a web site.

Input:  README, docs, and the docstrings of the code.
Output: a Sphinx source directory in ``.cache/site``, and HTML built from it, offline.

``sources`` copies the pages and adapts their links; ``reference`` generates pages from the
code; ``conf`` has Sphinx's settings. Start with ``__main__``.
"""
