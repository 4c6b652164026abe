"""Tests, mirroring the tree; `logs` makes small logs, `servers` starts real ones."""
