"""Binary formats of broker stores, each declared once; standard library only.

base             regions of fixed size, declared as lists of fields; `errors`: errors for invalid bytes
integer_parsing  numbers in untrusted text; `segments`: names of the files of a log
rocketmq         CommitLog, ConsumeQueue, IndexFile, timers, checkpoint and settings
boltmq           differences of BoltMQ's files
jmq              journal, queues, offsets, consume records
"""
