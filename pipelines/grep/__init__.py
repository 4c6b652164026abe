"""Bodies of messages searched by a regular expression, pack by pack.

pattern     the expression, and what it finds in arrays of bodies
planning    which packs hold the bodies that are to be read, and the tasks to read them
search      one task: the bodies of some packs, and the messages that match
run         all tasks, in order, and what was read

The rows of `messages` say where bodies are. Tasks run wherever `connectors.runtime` runs them, with the same results.
"""
