"""Random scenarios through the kubelet's own device manager and through ours, compared.

``go`` is the program around the real one; what is built of it stays in ``.cache``.
Never here: behaviour, or an exception that is not a named deviation with its reason.
"""
