"""Objects of the Kubernetes API made of the core's values, and read back: plain JSON values.

What belongs here: how a status looks. What never does: what it says, which is the core's.
"""
