"""Functions from DataFrames to DataFrames: no session, path, clock or action."""
