"""Archive runs: from ranges of a log to packs of bodies, data files of `messages`, and one commit."""
