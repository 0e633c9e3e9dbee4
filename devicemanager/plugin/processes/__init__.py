"""Running a plugin as a process: under a supervisor, with a node's paths where it wants them.

What belongs here: starting, watching and ending processes, and the private mounts they see.
What never does: anything of the kubelet. Nothing here needs root.
"""
