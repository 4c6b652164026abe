"""`commitlake replay`: send archived messages again, and manage replays.

command            the command line
arguments          options, and checks of their combinations
message_source     sources of messages: a lake, a store's log, live topics
message_selection  messages that the arguments select
send               a dry run, a new replay, and a resumed one
watch              requests during a replay: another rate, a stop, a pause while a group is behind
replay_management  list, show, stop, throttle
undo               offsets with which groups skip the sent messages
"""
