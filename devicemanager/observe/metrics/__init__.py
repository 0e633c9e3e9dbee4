"""The kubelet's metrics of a mock kubelet, read from its events and calls.

What belongs here: which metrics a version of the kubelet has, what happened as numbers, their
text form. What never does: anything on the way of an admission. Needs the extra ``http``.
"""
