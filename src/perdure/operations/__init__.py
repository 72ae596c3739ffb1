"""What an author calls: each operation is one recorded step (check -> start -> do -> record result)."""
