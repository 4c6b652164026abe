"""Dead letters: messages that consumer groups gave up on, by group, topic and cause.

dead_letter_rows  selection of dead letters, their rows and bodies
causes            dead letters counted by cause, to which the shape of a body belongs
cause_conditions  conditions for one cause, and conditions that leave out letters sent before
export            dead letters written to a file
"""
