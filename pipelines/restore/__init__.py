"""Restore of a store that a broker can start from: metadata from the lake's table `messages`, bodies from the packs.

What
    plan       a run: which lake, which broker, which range of its log; kept beside what is made, so that it can go on
    rows       the questions to the lake: where the range lies, its records, its queues' ends
    run        all of it: `restore_store`

One segment after the other
    segment    reads its rows, and writes its file
    records    rows in any order, each to its record's place (serialize, parts; kernel: compiled)
    bodies     bodies to their places, pack by pack
    stretches  what stands between records: fillers, and the BLANK at the end

Behind the log
    config     groups' offsets, delays that are done, groups; all else is rebuilt from the log (pipelines.rebuild)

A record comes out byte for byte as the broker stored it. The table tells of it all but the text of its properties: that
follows from the map, as brokers write it, and its length says whether it does. Where it does not (a key was repeated,
an entry had no value), a text is made that says the same, and decoders pass over what fills it up: see `serialize`.
"""
