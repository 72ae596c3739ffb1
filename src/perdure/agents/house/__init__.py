"""Our own coding agent: any model, a few well-made tools, served over the Agent Client Protocol by `perdure agent`."""
