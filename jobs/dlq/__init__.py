"""`commitlake dlq`: show dead letters by cause, export them, and send them again until they are consumed or dead again.

command     the command line
arguments   options, and checks of their combinations
selection      dead letters that the arguments select
report      causes as a report, a table, a chart and JSON
export      a file of dead letters
redrive     sends dead letters again
outcome     outcomes of the sent messages
"""
