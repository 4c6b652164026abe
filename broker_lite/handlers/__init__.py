"""What a broker answers: for every kind of request a function of broker, channel and command. No sockets or tasks."""
