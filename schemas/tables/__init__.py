"""The tables of a lake, as declared columns: grain, keys, and a comment for each column."""
