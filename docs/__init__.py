"""The documentation, and the programs that make pages of it."""
