"""The command line (spec/control.md 10).

`parser` knows the words, `commands` maps each to the coroutine or function that does it, `output` is the only place
that prints. Module level imports stay light, so that `perdure --help` is quick; what is heavy is imported by the
command that needs it.
"""
