"""Registration of plugins, and the connections to them.

Theory of operation. A plugin announces itself in one of two ways: it calls Register on
``kubelet.sock`` (``server``), or it puts a socket with the plugin registration API into
``plugins_registry`` (``watcher``). For both ways, ``registrar`` takes the same steps. It checks
version and name, and waits until the plugin's socket is served (``dialer``). It opens a gRPC
channel (``connection``), and calls GetDevicePluginOptions. It passes the connection to the device
manager, and reads device lists until the stream ends.

In:  Register calls, sockets in a directory, ListAndWatch messages.
Out: calls of the manager's ``ClientHandler`` (connect, update, disconnect), responses to plugins,
     events, and a log of all calls.

Threads:

* One event loop (``event_loop``) for everything that waits: dialing, handshakes, backoff. A
  thousand plugins that never answer need no further threads.
* One thread per connected plugin. The thread reads the plugin's device lists.
* A small pool for everything that can block: callbacks, events, closing a channel.

Invariants:

* A registration is identified by its connection, never by its name, path or resource.
* Plugins are untrusted. Names, texts, messages and numbers of connections are limited, and a
  plugin that hangs does not delay other plugins.
* This package makes no decisions about devices.

Start reading with ``registrar``, then ``server`` or ``watcher``. ``fault_injection`` delays,
fails and cuts calls if a test asks for it.
"""
