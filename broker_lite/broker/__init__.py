"""State of a broker besides its store: topics, groups, clients, locks and held pulls. No sockets, no tasks."""
