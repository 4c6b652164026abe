"""Replays: messages are sent again, in order, at a pace, and each of them once.

    selection     which messages                  plan        what is sent and where to, fixed before anything is sent
    copied        messages of a log or of live topics, as a table to choose from
    others        other replays of the same messages to the same place
    planning      makes a plan                    planned     a plan's messages, part by part
    parts         the rows and bodies of a part
    changes       what a function and masks do to messages; pipelines.masking does the latter
    changing      writes changed messages to replay_rows, and changed_rows reads them
    mapping       from rows to queues of the target
    stamping      properties of a message that is sent again
    batches, kernel   rows to batches, as they are sent
    sending       one batch into one queue, until it is certain whether it is there
    search        messages of a replay in the target
    pace          how fast
    sent_runs, stepping, undo
                  where the messages stand in the target, and how groups step over them
    ledger        the tables replays and replay_messages
    verifying     what was sent, read back and compared
    run           all of it, part by part
    outcomes      what became of the messages in a consumer group

A part's messages are sent, and then its rows are added to `replay_messages`: one commit, which fails if another process
has gone on with the replay. So a replay that was killed sends nothing twice: what a part's rows do not tell is looked
for in the target, from where its queues ended when the last rows were written.
"""
