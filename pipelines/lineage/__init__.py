"""Lineage: the history of the messages of a business key, a message id or an offset.

    story.py       the answer as plain objects: steps, edges, outcomes
    masked.py      masks personal data in a story

Nothing here needs Spark or a JVM. The rules that link records are not here: a story has exactly the edges that the
table `edges` has.
"""
