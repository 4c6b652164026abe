"""`commitlake dlq`: dead letters by cause, as a file, and sent again until each is consumed or dead again.

command     the command line
arguments   what can be asked, and what does not go together
choice      from arguments to the dead letters that are chosen
report      causes as a table, a chart and JSON
export      a file of dead letters
redrive     sending them again
outcome     what became of those that were sent
"""
