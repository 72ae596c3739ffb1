-- name: heads
-- What an append decides on, for all roots of a batch, as one JSON value: one step instead of one a row.
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), (
  SELECT json_group_array(json_array(leases.root, leases.holder, leases.epoch, runs.run_id, runs.last_seq,
                                     hex(runs.last_digest), runs.deleted_at IS NOT NULL))
  FROM json_each(:roots) AS wanted JOIN leases ON leases.root = wanted.value JOIN runs ON runs.id = leases.root)

-- name: insert+
INSERT INTO events (root, seq, run, epoch, key, type, payload, at, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: by_key
SELECT seq, at, type, payload FROM events WHERE run = :run AND key = :key

-- name: page
-- A page of one run's own events, as one JSON value.
SELECT json_group_array(json_array(seq, run, at, type, payload)) FROM (
  SELECT seq, run, at, type, payload FROM events
  WHERE root = :root AND seq >= :from_seq AND (:run IS NULL OR run = :run) ORDER BY seq LIMIT :count)

-- name: all
-- A whole journal in order, in JSON values of 1024 events each.
WITH RECURSIVE pages (first) AS (
  SELECT base_seq + 1 FROM runs WHERE id = :root
  UNION ALL SELECT first + 1024 FROM pages WHERE first + 1024 <= (SELECT last_seq FROM runs WHERE id = :root)
)
SELECT (SELECT json_group_array(json_array(seq, run, at, type, payload)) FROM (
  SELECT seq, run, at, type, payload FROM events
  WHERE root = :root AND seq BETWEEN first AND first + 1023 ORDER BY seq))
FROM pages

-- name: chain
-- What verification reads.
SELECT events.seq, runs.run_id, events.epoch, events.key, events.type, events.payload, events.at, events.digest
FROM events JOIN runs ON runs.id = events.run WHERE events.root = :root ORDER BY events.seq

-- name: chain_ends
SELECT base_seq, base_digest, last_seq, last_digest FROM runs WHERE id = :root

-- name: usage
SELECT tokens_in, tokens_out, coalesce(cost_nanos, 0) FROM usage WHERE run = :run AND position = :position

-- name: set_usage
INSERT INTO usage (run, position, tokens_in, tokens_out, cost_nanos)
VALUES (:run, :position, :tokens_in, :tokens_out, :cost_nanos)
ON CONFLICT (run, position) DO UPDATE SET tokens_in = :tokens_in, tokens_out = :tokens_out, cost_nanos = :cost_nanos

-- name: delete_all
DELETE FROM events WHERE root = :root

-- name: delete_usage
DELETE FROM usage WHERE run IN (SELECT id FROM runs WHERE root = :root)

-- name: delete_prompts
DELETE FROM prompts WHERE run IN (SELECT id FROM runs WHERE root = :root)
