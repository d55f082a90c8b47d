"""What the commands of `broadloom` do; their words and help are in `cli.py`.

The rules: a command is a function that returns its exit code (`errors.py` names them); a person's mistake is told in
one line, on standard error, without a traceback; what heavy things a command needs it imports when it runs, so that
`broadloom --help` stays quick.
"""
