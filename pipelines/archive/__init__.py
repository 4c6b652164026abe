"""Archive runs: packs of bodies and data files of `messages` are written from ranges of logs, then committed."""
