"""Messages without what must not be in the lake, or must not leave it.

masks         rules for one field of one message, as hash or text; json_values for fields of a JSON body
mask_columns  the same rules for columns
archiving     rows and bodies masked before they are archived, and the rules that a lake remembers
erased_rows   messages that were erased: what is taken out of their rows, and what stays
tombstones    rows of `erasures`: the proof of what a row was before, and is afterwards
"""
