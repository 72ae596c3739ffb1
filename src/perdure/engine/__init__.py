"""The engine owns runs: it executes their bodies, journals their steps, and is the only writer of their journals."""
