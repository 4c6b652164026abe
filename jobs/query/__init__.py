"""`commitlake query`: query the lake."""
