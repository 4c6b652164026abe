"""Replays: messages are sent again, in order, at a limited rate, and each of them exactly once.

    selection          chooses messages, as a condition in SQL
    groups             messages that groups have consumed, before a replay and after it
    copied_messages    copies messages of a log or of live topics into a table to choose from
    plan               messages to send and their target, fixed before anything is sent
    planning           makes a plan
    other_replays      other replays of the same messages to the same target
    plan_part_rows     rows and bodies of a part
    planned_messages   reads a plan's messages, part by part
    message_changes    changes messages by a function and by masks (of pipelines.masking)
    replay_rows        writes changed messages to replay_rows, and drops them later
    spark_transform    runs such a function on Spark
    queue_mapping      assigns rows to queues of the target
    origin_properties  properties of a message that is sent again
    sending            sends a plan's messages, in this process or by tasks
    sent_messages      finds messages of a replay in the target
    ledger             the tables replays and replay_messages
    verifying          reads sent messages back and compares them

A part's messages are sent, and then its rows are added to `replay_messages` in one commit, which fails if another
process has taken the replay over. After a kill, the next run searches the target for messages of the part without rows,
from the offsets at which its queues ended when the last rows were written. So no message is sent twice.
"""
