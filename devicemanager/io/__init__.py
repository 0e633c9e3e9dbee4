"""Infrastructure of both sides: directory watches over watchdog, retries over tenacity, files of
unknown origin, directories for sockets.

What belongs here: the one set-up of each of these libraries, and the one way to read or make
such a file or directory. What never does: anything that knows devices, plugins or pods. Unix
sockets and the identity of files are in :mod:`podresources.sockets`, since ``podresources`` must
do without ``devicemanager``.
"""
