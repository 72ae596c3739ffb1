"""Other durable engines doing the same work in the same session.

`environment` installs each into a virtual environment of its own; `<name>_work.py` is run there, with nothing of
perdure in it, and prints its figures; `versus` makes rows of them.
"""
