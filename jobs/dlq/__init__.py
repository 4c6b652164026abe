"""`commitlake dlq`: show dead letters by cause, export them, and send them again until they are consumed or dead again.

command     the command line
arguments   what can be asked, and what does not go together
choice      from arguments to the dead letters that are chosen
report      causes as a table, a chart and JSON
export      a file of dead letters
redrive     sending them again
outcome     what became of those that were sent
"""
