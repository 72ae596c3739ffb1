-- name: create+
INSERT INTO leases (root, holder, epoch, process, renewed_at, timeout_ms) VALUES (?, ?, ?, ?, ?, ?)

-- name: one
SELECT holder, epoch, process, renewed_at, timeout_ms FROM leases WHERE root = :root

-- name: keep
-- The same holder asks again: same epoch.
UPDATE leases SET renewed_at = :now, timeout_ms = :timeout_ms, process = :process
WHERE root = :root AND holder = :holder

-- name: take
-- The token of what was read is in the WHERE clause.
UPDATE leases SET holder = :holder, epoch = epoch + 1, process = :process, renewed_at = :now, timeout_ms = :timeout_ms
WHERE root = :root AND epoch = :epoch AND holder IS :previous

-- name: renew
UPDATE leases SET renewed_at = :now WHERE root = :root AND holder = :holder AND epoch = :epoch

-- name: release+
-- (root, holder, epoch); a lost lease is left alone.
UPDATE leases SET holder = NULL, process = NULL
FROM (VALUES (?, ?, ?)) AS gone
WHERE leases.root = gone.column1 AND leases.holder = gone.column2 AND leases.epoch = gone.column3

-- name: fence
-- Nobody holds it, and whoever did may not write any more.
UPDATE leases SET holder = NULL, process = NULL, epoch = epoch + 1 WHERE root = :root
