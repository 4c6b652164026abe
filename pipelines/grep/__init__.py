"""Search of message bodies by a regular expression, pack by pack.

pattern     the regular expression, and its matches in arrays of bodies
planning    the packs with the bodies to read, and the tasks that read them
search      runs the tasks, which read the bodies of some packs and return the messages that match

The rows of `messages` give the places of the bodies. Tasks run wherever `connectors.runtime` runs them, with the same
results.
"""
