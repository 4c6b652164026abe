"""Messages that consumer groups gave up: how many, of which group and topic, and why.

letters      which dead letters are meant, their rows and bodies
shape        the fields of a body's JSON, with their types
causes       dead letters counted by cause
narrowing    conditions for one cause, and without what was sent before
export       dead letters as a file
"""
