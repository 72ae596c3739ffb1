-- The store of perdure: what every table is for, who may write it, and in which order locks are taken.
--
-- runs         One row a run, children too; a tombstone once deleted, never removed. It is the catalog: lists read these
--              rows and fold nothing. Everything but the creation columns is a view of the events, written in their
--              transaction. `root` is the row that owns the journal (a root run points at itself).
-- leases       One row a root run: who may append (holder, epoch) and until when a silent owner keeps that right. A row of
--              its own, so that renewals never touch the catalog. A new holder raises `epoch`; `holder` is NULL once
--              released. `process` names the owner's operating system process, so that a dead one can be proven gone.
-- events       The journal and the truth. `seq` is gap-free within a root; `run` says whose event it is, so a child's
--              writes are told apart by a column. The first event with a (run, key) wins. `digest` is blake2b-16 of the
--              previous digest and the row; the last one is in `runs`. Rows are appended at the end of the table and
--              found by two small indexes, so 200 runs that append at once share a few pages.
-- usage        What each stage has used so far, absolute; `runs` has the sums, its own and its descendants'.
-- prompts      One row a question to a person, and the home of its answer: any process answers, by compare-and-set on
--              (prompt_id, generation, open); the owner appends prompt_answered later.
-- requests     The control mailbox. Any process posts, the owner settles, the poster may withdraw; settle and withdraw
--              compare-and-set on the state, so a refused request never runs later.
-- worktrees    One row a git worktree that a run uses, written before it is made, so that nothing a crash leaves behind is
--              unknown; gone once the worktree and the run's snapshots in its repository are.
-- transcripts  What was said in a stage's session, for people; kept when a run is deleted.
--
-- Verbs: journal append, read; lease acquire, renew, release; run create, delete; prompt reserve, open, answer, release;
-- request post, settle, withdraw; worktree plan, set_state, forget; transcript append, read.
--
-- Locking. SQLite has one writer: every write begins with BEGIN IMMEDIATE behind the turnstile, so no transaction is ever
-- upgraded from read to write. A server database takes row locks in this order: leases (shared), runs (for update),
-- events, then the rest. Authority (holder, epoch) is checked in the same transaction as the write it allows.

CREATE TABLE meta (
  name    TEXT PRIMARY KEY,
  version INTEGER NOT NULL CHECK (version > 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
  id              INTEGER PRIMARY KEY,
  run_id          TEXT NOT NULL UNIQUE CHECK (run_id <> ''),
  root            INTEGER NOT NULL REFERENCES runs (id),
  parent          INTEGER REFERENCES runs (id),
  parent_position TEXT,
  depth           INTEGER NOT NULL CHECK (depth >= 1),
  name            TEXT NOT NULL,
  cwd             TEXT NOT NULL,
  definition      TEXT NOT NULL,
  file_digest     TEXT NOT NULL,
  status          TEXT NOT NULL DEFAULT 'pending' CONSTRAINT run_status CHECK (status IN
    ('pending', 'running', 'paused', 'blocked', 'completed', 'skipped', 'cancelled', 'exit_blocked', 'failed', 'killed')),
  status_epoch    INTEGER NOT NULL DEFAULT 0,
  resumable       INTEGER NOT NULL DEFAULT 1 CHECK (resumable IN (0, 1)),
  code            TEXT NOT NULL DEFAULT '',
  reason          TEXT NOT NULL DEFAULT '',
  error_code      TEXT NOT NULL DEFAULT '',
  error_message   TEXT NOT NULL DEFAULT '',
  events_count    INTEGER NOT NULL DEFAULT 0,
  nodes_done      INTEGER NOT NULL DEFAULT 0,
  prompts_open    INTEGER NOT NULL DEFAULT 0 CHECK (prompts_open >= 0),
  tokens_in       INTEGER NOT NULL DEFAULT 0,
  tokens_out      INTEGER NOT NULL DEFAULT 0,
  cost_nanos      INTEGER NOT NULL DEFAULT 0,
  base_seq        INTEGER NOT NULL DEFAULT 0,
  base_digest     BLOB NOT NULL DEFAULT x'',
  last_seq        INTEGER NOT NULL DEFAULT 0 CHECK (last_seq >= base_seq),
  last_digest     BLOB NOT NULL DEFAULT x'',
  created_at      INTEGER NOT NULL,
  started_at      INTEGER,
  ended_at        INTEGER,
  updated_at      INTEGER NOT NULL,
  deleted_at      INTEGER,
  CONSTRAINT run_place CHECK ((parent IS NULL) = (depth = 1) AND (parent IS NULL) = (root = id)
                              AND (parent IS NULL) = (parent_position IS NULL)),
  CONSTRAINT run_final CHECK ((ended_at IS NOT NULL) =
    (status IN ('completed', 'skipped', 'cancelled', 'exit_blocked', 'failed', 'killed')))
) STRICT;

CREATE INDEX runs_tree ON runs (root, id);
CREATE UNIQUE INDEX runs_place ON runs (parent, parent_position) WHERE parent IS NOT NULL;
CREATE INDEX runs_unfinished ON runs (id) WHERE ended_at IS NULL AND deleted_at IS NULL;

CREATE TABLE leases (
  root       INTEGER PRIMARY KEY REFERENCES runs (id),
  holder     TEXT CHECK (holder <> ''),
  epoch      INTEGER NOT NULL CHECK (epoch > 0),
  process    TEXT,
  renewed_at INTEGER NOT NULL,
  timeout_ms INTEGER NOT NULL CHECK (timeout_ms > 0)
) STRICT;

CREATE TABLE events (
  root    INTEGER NOT NULL,
  seq     INTEGER NOT NULL CHECK (seq > 0),
  run     INTEGER NOT NULL REFERENCES runs (id),
  epoch   INTEGER NOT NULL,
  key     TEXT NOT NULL CHECK (key <> ''),
  type    TEXT NOT NULL,
  payload TEXT NOT NULL,
  at      INTEGER NOT NULL,
  digest  BLOB NOT NULL CHECK (length(digest) = 16),
  UNIQUE (root, seq),
  UNIQUE (run, key)
) STRICT;

CREATE TABLE usage (
  run        INTEGER NOT NULL REFERENCES runs (id),
  position   TEXT NOT NULL,
  tokens_in  INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cost_nanos INTEGER,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE prompts (
  prompt_id    TEXT PRIMARY KEY CHECK (prompt_id <> ''),
  prompt_key   TEXT NOT NULL,
  run          INTEGER NOT NULL REFERENCES runs (id),
  position     TEXT NOT NULL,
  generation   INTEGER NOT NULL CHECK (generation > 0),
  state        TEXT NOT NULL CONSTRAINT prompt_state CHECK (state IN ('reserved', 'open', 'answered', 'released')),
  question     TEXT,
  answer       TEXT,
  actor        TEXT NOT NULL DEFAULT '',
  reason       TEXT NOT NULL DEFAULT '',
  asked_at     INTEGER,
  answered_at  INTEGER,
  UNIQUE (run, prompt_key),
  CONSTRAINT prompt_asked CHECK (state NOT IN ('open', 'answered') OR question IS NOT NULL),
  CONSTRAINT prompt_answered CHECK ((state = 'answered') = (answer IS NOT NULL)
                                    AND (answer IS NULL) = (answered_at IS NULL))
) STRICT;

CREATE INDEX prompts_open ON prompts (run) WHERE state = 'open';
CREATE INDEX prompts_answered ON prompts (run, answered_at) WHERE state = 'answered';

CREATE TABLE requests (
  id         INTEGER PRIMARY KEY,
  request_id TEXT NOT NULL UNIQUE CHECK (request_id <> ''),
  root       INTEGER NOT NULL REFERENCES runs (id),
  run        INTEGER NOT NULL REFERENCES runs (id),
  verb       TEXT NOT NULL,
  args       TEXT NOT NULL,
  actor      TEXT NOT NULL,
  state      TEXT NOT NULL CONSTRAINT request_state CHECK (state IN ('pending', 'settled', 'withdrawn')),
  outcome    TEXT,
  posted_at  INTEGER NOT NULL,
  ended_at   INTEGER,
  CONSTRAINT request_final CHECK ((state = 'pending') = (ended_at IS NULL) AND (state = 'settled') = (outcome IS NOT NULL))
) STRICT;

CREATE INDEX requests_pending ON requests (root, id) WHERE state = 'pending';

CREATE TABLE worktrees (
  run        INTEGER NOT NULL REFERENCES runs (id),
  path       TEXT NOT NULL CHECK (path <> ''),
  kind       TEXT NOT NULL CONSTRAINT worktree_kind CHECK (kind IN ('named', 'given', 'temporary')),
  repository TEXT NOT NULL,
  branch     TEXT,
  base       TEXT NOT NULL,
  state      TEXT NOT NULL CONSTRAINT worktree_state CHECK (state IN ('planned', 'made', 'removed')),
  at         INTEGER NOT NULL,
  PRIMARY KEY (run, path),
  CONSTRAINT worktree_branch CHECK ((kind = 'named') = (branch IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE transcripts (
  id       INTEGER PRIMARY KEY,
  run      INTEGER NOT NULL REFERENCES runs (id),
  position TEXT NOT NULL,
  take     INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  entry    TEXT NOT NULL,
  at       INTEGER NOT NULL
) STRICT;

CREATE INDEX transcripts_stage ON transcripts (run, position, id);
