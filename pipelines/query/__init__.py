"""Look-ups in the lake: their SQL, the engines that run them, and tables that find a key's messages faster."""
