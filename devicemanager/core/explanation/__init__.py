"""Explanations of admissions: why a pod got its devices, or why it was rejected.

``model`` holds the facts. ``text`` renders them as text, and ``data`` converts them for JSON. The
facts are values that the admission needs anyway. All other values are computed from the facts when
they are read.
"""
