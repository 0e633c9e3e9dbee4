"""What both sides of the socket must agree on: names and constants of the device plugin API.

What belongs here: pure rules over text, each of them once, for the kubelet's side and for
the plugin's. What never does: state, I/O, protobuf, and anything that only one side knows.
"""
