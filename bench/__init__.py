"""Measures perdure against the machine it runs on: `python -m bench` (README.md here says how to read the table)."""
