"""Binary formats of a RocketMQ store, each declared once; standard library only.

Read `commitlog` first: the CommitLog is the data, everything else in a store is an index into it.
`scan` tells where the records of a segment begin and end, and what lies between them.
"""
