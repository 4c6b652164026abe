"""Look-ups in the lake: their SQL, which engine runs them, and the tables that find a key's messages faster."""
