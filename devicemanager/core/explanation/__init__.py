"""Explanations of admissions: why a pod was allocated these devices, or rejected.

``model`` holds the facts, ``text`` renders them for people and ``data`` for JSON. The facts
are values that the admission computed anyway; everything derived from them is computed when
it is read.
"""
