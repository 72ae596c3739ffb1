"""The machine: processes and who they are. Everything that spawns, signals or looks at a process is in here."""
