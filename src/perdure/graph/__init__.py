"""The graph of a run: lanes say who made a call and what came before it. Pure."""
