"""The table `edges`: what brokers and clients did with each message, made from `messages` version by version.

    members    rows of `messages` as what steps begin and end at
    traces     bodies of trace messages as what clients did
    matching   which row comes before another one of the same keys
    links      one function for each kind of step
    rows       steps as rows of `edges`
    spans      how far the lake goes for each broker, which says why an end is absent
    finding    members of earlier runs
    follow     the table follows `messages`

All of it works on Arrow and numpy columns. `archive --local` has no Spark, and an increment is small beside the lake:
a second implementation on DataFrames would gain nothing, and could differ from this one.
"""
