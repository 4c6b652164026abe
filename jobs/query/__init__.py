"""`commitlake query`: ask the lake."""
