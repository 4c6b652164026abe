"""`commitlake journeys`: paths of all keys over topics, times between topics, and keys that do not fit."""
