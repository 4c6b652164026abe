"""`commitlake replay`: send archived messages again, and manage replays.

command     the command line
arguments   what can be asked, and what does not go together
source      where they come from: a lake, a store's log, live topics
choice      from arguments to the messages that are chosen
send        a dry run, a new replay, and one that goes on
watch       requests while it sends: another rate, a stop, a pause while a group is behind
actions     list, show, stop, throttle
undo        which offsets let groups step over what was sent
"""
