"""The table `edges`: actions of brokers and clients on each message, from new rows of `messages` and `consumptions`.

    step_records    rows of `messages` as possible ends of steps
    client_actions  actions of clients, from bodies of trace messages and rows of `consumptions`
    retry_states    content of retry stores as steps
    key_matching    finds the row before another one with the same keys
    links           package of functions that find steps, with an example for each kind
    edge_rows       steps as rows of `edges`, and open steps from such rows
    lake_spans      extent of the lake for each broker, which explains absent ends
    message_reader  reads rows, and bodies of trace messages and op records
    row_lookup      looks up members of earlier runs, and finds files that contribute nothing to any step
    table_update    updates the table to the newest versions of both

All of it works on Arrow and numpy columns. `archive --local` has no Spark, and an increment is small compared to the
lake, so a second implementation with DataFrames would gain nothing and might give different results.
"""
