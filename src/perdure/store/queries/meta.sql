-- name: now
-- The store's clock, milliseconds since 1970.
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table'

-- name: version
SELECT version FROM meta WHERE name = 'schema'

-- name: set_version
INSERT INTO meta (name, version) VALUES ('schema', :version) ON CONFLICT (name) DO UPDATE SET version = :version

-- name: begin
BEGIN IMMEDIATE

-- name: begin_read
BEGIN

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: savepoint
SAVEPOINT unit

-- name: rollback_to
ROLLBACK TO unit

-- name: release
RELEASE unit

-- name: data_version
PRAGMA data_version

-- name: wal
PRAGMA journal_mode = WAL

-- name: full
PRAGMA synchronous = FULL

-- name: foreign_keys
PRAGMA foreign_keys = ON

-- name: journal_limit
-- The write-ahead file shrinks back to this after a burst. Bytes.
PRAGMA journal_size_limit = 67108864

-- name: only_read
PRAGMA query_only = ON
