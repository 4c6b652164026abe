"""Replays: messages are sent again, in order, at a limited rate, and each of them exactly once.

    selection     chooses messages, as a condition in SQL
    not_consumed  messages that a group has not consumed, by its offsets at a time
    consumed      number of chosen messages that groups have consumed
    plan          messages to send and their target, fixed before anything is sent
    copied        copies messages of a log or of live topics into a table to choose from
    others        other replays of the same messages to the same target
    planning      makes a plan
    planned       reads a plan's messages, part by part
    parts         rows and bodies of a part
    changes       changes messages by a function and by masks (of pipelines.masking)
    changing      writes changed messages to replay_rows; changed_rows reads them
    transforming  runs such a function on Spark
    mapping       assigns rows to queues of the target
    stamping      properties of a message that is sent again
    batches, kernel   encodes rows as batches
    sending       sends one batch to one queue, and finds out whether it was stored
    search        finds messages of a replay in the target
    pace          limits the rate
    sent_runs, stepping, undo
                  offsets of the messages in the target, and moving groups past them
    ledger        the tables replays and replay_messages
    verifying     reads sent messages back and compares them
    run           sends a plan, part by part
    expiry        drops copies in replay_rows that nobody needs any more
    outcomes      state of the messages in a consumer group

A part's messages are sent, and then its rows are added to `replay_messages` in one commit, which fails if another
process has taken the replay over. After a kill, the next run searches the target for messages of the part without rows,
from the offsets at which its queues ended when the last rows were written. So no message is sent twice.
"""
