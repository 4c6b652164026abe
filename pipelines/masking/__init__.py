"""Removal of personal data from messages, before they are archived or after an erasure.

masks             rules for one field of one message, such as hash or text
archive_masks     masks for rows and bodies before they are archived, and the rules stored in a lake
erased_rows       removal of data from the rows of erased messages
erasure_rows      rows of `erasures`: hashes of each row before and after its erasure
copies_of_erased  recognition of messages that are copies of erased ones
"""
