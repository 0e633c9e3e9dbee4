"""Explanations of admissions: why a pod got its devices, or why it was rejected.

``model`` holds the facts: values that the admission computes anyway. All other values are computed
from the facts, but only when a caller reads them. ``text`` renders an explanation as text, and
``data`` converts it for JSON.
"""
