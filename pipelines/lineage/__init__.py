"""Lineage: the history of the messages of a business key, a message id or an offset.

    message_history.py  the answer as plain objects: steps, edges, group_outcomes
    history_masking.py  masks personal data in a story

Nothing here needs Spark or a JVM. The rules that link records are not here: a story has exactly the edges that the
table `edges` has.
"""
