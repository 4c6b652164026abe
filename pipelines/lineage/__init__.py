"""Lineage: what happened to the messages of a business key, a message id or an offset.

    story.py       the answer as plain objects: steps, edges, outcomes
    masked.py      a story whose personal data are masked

Nothing here needs Spark or a JVM. The rules that join records to each other are not here: a story has the edges that
the table `edges` has, and no others.
"""
