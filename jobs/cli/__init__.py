"""Code that all commands share: arguments, output, progress, errors, and the process."""
