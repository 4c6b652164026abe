"""`commitlake erase`: delete messages from a lake permanently, and prove it."""
