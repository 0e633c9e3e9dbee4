"""Explanations of admissions: why a pod got its devices, or why it was rejected.

``model`` holds the facts. ``text`` renders them as text, and ``data`` converts them for JSON. The
facts are values that the admission needs anyway. Everything else is computed from the facts when
it is read.
"""
