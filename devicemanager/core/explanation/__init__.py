"""Explanations of admissions: why a pod was allocated these devices, or rejected.

``model`` holds the facts. ``text`` renders them as text, and ``data`` converts them for JSON. The
facts are values that the admission needs anyway. Everything else is computed from the facts when
it is read.
"""
