"""Archive runs without access to a broker's files: messages are pulled, queue by queue.

    broker_plan.py     the queues of a broker, and the plan for them
    planning.py        ranges of queues that a run pulls, from the offsets of a broker's queues
    pull_task_input.py ranges that a task reads, with limits and retries
    tasks_result.py    progress and gaps for the run's commit

A run pulls the messages of all queues up to one offset in the broker's log: its end when the run began. Its commit to
`messages` records that offset, as a run over files does, and the next offset of each queue. The rows are the same as
those of a run over files, because a broker sends its records as they are stored.

A broker can be archived alternately from its files and by pulling: a run over files continues from the offset in the
log, and a run that pulls skips messages before it. Messages that no queue refers to exist only in the files.
"""
