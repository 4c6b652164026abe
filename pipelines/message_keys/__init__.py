"""The table `message_keys`: made from `messages`, version by version, and asked for the places of a key's messages."""
