"""Binary formats of broker stores, each declared once; standard library only.

base       regions of fixed size, declared as lists of fields; `errors`: what can be wrong with bytes
numbers    numbers out of text that somebody else wrote; `segments`: names of the files that make one log
rocketmq   CommitLog, ConsumeQueue, IndexFile, timers, checkpoint and settings
boltmq     how BoltMQ's files differ from these
jmq        journal, queues, offsets, consume records
"""
