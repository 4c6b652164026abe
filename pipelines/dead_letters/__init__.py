"""Dead letters: messages that consumer groups gave up on, by group, topic and cause.

letters      selection of dead letters, their rows and bodies
shape        the fields of a body's JSON, with their types
causes       dead letters counted by cause
narrowing    conditions for one cause, and conditions that leave out letters sent before
export       dead letters written to a file
"""
