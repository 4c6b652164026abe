"""Request handlers: one function of broker, channel and command for each kind of request. No sockets, no tasks."""
