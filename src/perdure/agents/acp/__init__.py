"""Agents that speak the Agent Client Protocol (ACP v1, JSON-RPC by standard input and output).

`profiles` knows what is special about each agent, `agent` builds one from its settings, `opening` starts a session,
`session` runs its turns. `connection` is the process and its end, `peer` the protocol below, `frames` the record of
every frame. `client` answers what the agent asks of us, with `files`, `terminals`, `places` and `permissions`;
`updates` reads what it tells.
"""
