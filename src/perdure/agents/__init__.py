"""Agents: whatever answers a stage's prompt. `session` has the contract, `registry` builds one by name."""
