-- name: next_id
SELECT coalesce(max(id), 0) + 1 FROM runs

-- name: create+
INSERT INTO runs (id, run_id, root, parent, parent_position, depth, name, cwd, definition, file_digest, created_at,
                  updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: place
-- Where a run lives: its row, its root's row and id.
SELECT run.id, run.root, root.run_id, run.parent, run.parent_position
FROM runs AS run JOIN runs AS root ON root.id = run.root WHERE run.run_id = :run_id

-- name: places
-- The rows of some runs of a batch, as one JSON value: one step instead of one a row.
SELECT json_group_array(json_array(run_id, id, root))
FROM runs WHERE run_id IN (SELECT value FROM json_each(:run_ids))

-- name: ids_of_root
SELECT json_group_array(json_array(id, run_id)) FROM runs WHERE root = :root

-- name: advance+
-- After an append: (row, sequence and digest or NULL for a child, events, nodes done, time).
UPDATE runs SET last_seq = coalesce(new.column2, last_seq), last_digest = coalesce(new.column3, last_digest),
  events_count = events_count + new.column4, nodes_done = nodes_done + new.column5, updated_at = new.column6
FROM (VALUES (?, ?, ?, ?, ?, ?)) AS new WHERE runs.id = new.column1

-- name: advance_one+
-- As advance, for one run: half the cost of a list of one.
UPDATE runs SET last_seq = coalesce(?2, last_seq), last_digest = coalesce(?3, last_digest),
  events_count = events_count + ?4, nodes_done = nodes_done + ?5, updated_at = ?6 WHERE id = ?1

-- name: set_status+
-- (row, status, epoch, resumable, code, reason, error code, error message, ended, time, began).
UPDATE runs SET status = new.column2, status_epoch = new.column3, resumable = new.column4, code = new.column5,
  reason = new.column6, error_code = new.column7, error_message = new.column8,
  started_at = CASE WHEN new.column11 THEN coalesce(started_at, new.column10) ELSE started_at END,
  ended_at = CASE WHEN new.column9 THEN new.column10 END
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) AS new WHERE runs.id = new.column1

-- name: add_spend
-- To a run and every run above it.
WITH RECURSIVE above (id, parent) AS (
  SELECT id, parent FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent FROM above JOIN runs ON runs.id = above.parent
)
UPDATE runs SET tokens_in = tokens_in + :tokens_in, tokens_out = tokens_out + :tokens_out,
  cost_nanos = cost_nanos + :cost_nanos
WHERE id IN (SELECT id FROM above)

-- name: add_prompts
-- To a run and every run above it.
WITH RECURSIVE above (id, parent) AS (
  SELECT id, parent FROM runs WHERE id = :run
  UNION ALL SELECT runs.id, runs.parent FROM above JOIN runs ON runs.id = above.parent
)
UPDATE runs SET prompts_open = prompts_open + :change, updated_at = :now WHERE id IN (SELECT id FROM above)

-- name: catalog
-- Newest first. A root's lease tells whether a live process owns it.
SELECT run.run_id, root.run_id, parent.run_id, run.parent_position, run.depth, run.name, run.cwd, run.definition,
  run.file_digest, run.status, run.status_epoch, run.resumable, run.code, run.reason, run.error_code, run.error_message,
  run.events_count, run.nodes_done, run.prompts_open, run.tokens_in, run.tokens_out, run.cost_nanos, run.last_seq,
  run.created_at, run.started_at, run.ended_at, run.updated_at, run.deleted_at,
  leases.holder, leases.epoch, leases.process, leases.renewed_at + leases.timeout_ms
FROM runs AS run JOIN runs AS root ON root.id = run.root LEFT JOIN runs AS parent ON parent.id = run.parent
  LEFT JOIN leases ON leases.root = run.root
WHERE (run.depth = 1 OR :children) AND (run.deleted_at IS NULL OR :deleted)
  AND (:status IS NULL OR run.status = :status) AND (:before IS NULL OR run.run_id < :before)
ORDER BY run.run_id DESC LIMIT :count

-- name: tree
-- A root and every run below it, in order of creation.
SELECT run.run_id, root.run_id, parent.run_id, run.parent_position, run.depth, run.name, run.cwd, run.definition,
  run.file_digest, run.status, run.status_epoch, run.resumable, run.code, run.reason, run.error_code, run.error_message,
  run.events_count, run.nodes_done, run.prompts_open, run.tokens_in, run.tokens_out, run.cost_nanos, run.last_seq,
  run.created_at, run.started_at, run.ended_at, run.updated_at, run.deleted_at,
  leases.holder, leases.epoch, leases.process, leases.renewed_at + leases.timeout_ms
FROM runs AS run JOIN runs AS root ON root.id = run.root LEFT JOIN runs AS parent ON parent.id = run.parent
  LEFT JOIN leases ON leases.root = run.root
WHERE run.root = (SELECT root FROM runs WHERE run_id = :run_id) ORDER BY run.id

-- name: one
SELECT run.run_id, root.run_id, parent.run_id, run.parent_position, run.depth, run.name, run.cwd, run.definition,
  run.file_digest, run.status, run.status_epoch, run.resumable, run.code, run.reason, run.error_code, run.error_message,
  run.events_count, run.nodes_done, run.prompts_open, run.tokens_in, run.tokens_out, run.cost_nanos, run.last_seq,
  run.created_at, run.started_at, run.ended_at, run.updated_at, run.deleted_at,
  leases.holder, leases.epoch, leases.process, leases.renewed_at + leases.timeout_ms
FROM runs AS run JOIN runs AS root ON root.id = run.root LEFT JOIN runs AS parent ON parent.id = run.parent
  LEFT JOIN leases ON leases.root = run.root
WHERE run.run_id = :run_id

-- name: find
-- Ids in a range of prefixes: the index is searched, not scanned.
SELECT run_id FROM runs WHERE run_id >= :prefix AND run_id < :end AND deleted_at IS NULL ORDER BY run_id LIMIT :count

-- name: bury
-- The tombstone keeps sequence and digest, so that a revived run goes on from them.
UPDATE runs SET deleted_at = :now, updated_at = :now, base_seq = last_seq, base_digest = last_digest WHERE id = :root

-- name: bury_children
UPDATE runs SET deleted_at = :now, updated_at = :now WHERE root = :root AND id <> :root

-- name: revive
UPDATE runs SET deleted_at = NULL, status = 'pending', status_epoch = 0, resumable = 1, code = '', reason = '',
  error_code = '', error_message = '', events_count = 0, nodes_done = 0, prompts_open = 0, tokens_in = 0, tokens_out = 0,
  cost_nanos = 0, started_at = NULL, ended_at = NULL WHERE id = :root
