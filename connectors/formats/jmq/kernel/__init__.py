"""JMQ's journal for the kernel's loops: see `kernel.layouts`.

records     examination of a position, and positions of a record's parts
columns     fields, addresses, ids; numbers: numbers as text
properties  entries, and their escapes
"""
