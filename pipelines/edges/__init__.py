"""The table `edges`: actions of brokers and clients on each message, from new rows of `messages` and `consumptions`.

    members       rows of `messages` as possible ends of steps
    traces        bodies of trace messages as actions of clients
    logged        rows of `consumptions` in the same form as traces
    retry_states  content of retry stores as steps
    matching      finds the row before another one with the same keys
    links         package of functions that find steps, with an example for each kind
    edge_rows     steps as rows of `edges`
    spans         extent of the lake for each broker, which explains absent ends
    finding       looks up members of earlier runs
    skipping      finds data files that contribute nothing to any step
    follow        updates the table to the newest versions of both

All of it works on Arrow and numpy columns. `archive --local` has no Spark, and an increment is small compared to the
lake, so a second implementation with DataFrames would gain nothing and might give different results.
"""
