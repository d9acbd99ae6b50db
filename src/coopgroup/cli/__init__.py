"""The command line. Each command is a module that is imported when the command runs."""
