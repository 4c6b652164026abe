"""What a broker knows beside its store: topics, groups, clients, locks, pulls that wait. No sockets or tasks."""
