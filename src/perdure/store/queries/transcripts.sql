-- name: append+
INSERT INTO transcripts (run, position, take, kind, entry, at) VALUES (?, ?, ?, ?, ?, ?)

-- name: read
SELECT id, take, kind, entry, at FROM transcripts
WHERE run = :run AND position = :position AND id > :after ORDER BY id LIMIT :count

-- name: last
-- The newest entries, for a screen that opens at the end.
SELECT id, take, kind, entry, at FROM (
  SELECT id, take, kind, entry, at FROM transcripts
  WHERE run = :run AND position = :position ORDER BY id DESC LIMIT :count) ORDER BY id
