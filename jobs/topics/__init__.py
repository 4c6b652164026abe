"""The command `topics`."""
