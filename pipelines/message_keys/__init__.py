"""The table `message_keys`: derived from new versions of `messages`, and queried for the places of a key's messages."""
