"""What the commands share: arguments, output, progress, errors, and the process that they run in."""
