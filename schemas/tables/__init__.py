"""The tables of a lake as Spark StructTypes: grain, keys, and a comment for each column."""
