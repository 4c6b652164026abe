"""A clean log from a damaged one: every intact record at its own offset, and nothing between them that stops a broker.

What it is made of
    fillers    what goes to a place that holds no intact record
    segments   one segment, written anew: a task
    tail       what stands behind the log's end, and is left out
    run        all of a log: `salvage_store`
"""
