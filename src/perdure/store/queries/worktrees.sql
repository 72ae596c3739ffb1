-- name: plan
-- Before git is asked to make it, so that whatever a crash leaves behind is known.
INSERT INTO worktrees (run, path, kind, repository, branch, base, state, at)
VALUES (:run, :path, :kind, :repository, :branch, :base, 'planned', :now)
ON CONFLICT (run, path) DO UPDATE SET kind = :kind, repository = :repository, branch = :branch, base = :base,
  state = 'planned', at = :now

-- name: set_state
UPDATE worktrees SET state = :state, at = :now WHERE run = :run AND path = :path

-- name: one
SELECT path, kind, repository, branch, base, state FROM worktrees WHERE run = :run AND path = :path

-- name: of_tree
-- Of every run of a tree, with the run's id.
SELECT runs.run_id, path, kind, repository, branch, base, state
FROM runs JOIN worktrees ON worktrees.run = runs.id WHERE runs.root = :root ORDER BY runs.id, path

-- name: forget
DELETE FROM worktrees WHERE run = :run AND path = :path
