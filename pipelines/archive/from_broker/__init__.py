"""Archive without access to a broker's files: messages are pulled, queue by queue.

    source.py     which brokers and topics, and how patiently
    log_end.py    where a broker's log ends whose queues lead to all of it
    queues.py     what a broker's queues hold
    planning.py   what a run takes of each queue
    part.py       what a task reads
    outcome.py    what the run's commit says of it

A run takes the messages of all queues up to one place in the broker's log, its end when the run began. Its commit to
`messages` has that place, as a run over files has, and the offset that comes next in each queue: both count, or none.
Rows are those that a run over the files gives, for a broker sends its records as they are stored.

One broker can be archived by turns from its files and so: a run over files goes on from the place in the log, and one
that pulls leaves out what lies before it. What no queue leads to is only in the files.
"""
