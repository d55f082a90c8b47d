"""The `broadloom` command, one file per command or command group.

A command is a function that parses its arguments, calls the library and returns an exit code (`exit_codes.py`). Errors
that the user can fix are one line on standard error, never a traceback. `main.py` imports the module of a command only
when that command is used.
"""
