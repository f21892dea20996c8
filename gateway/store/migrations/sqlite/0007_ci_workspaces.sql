-- Workspaces in jobs of CI systems, and the pipelines that were made for them.
-- Times are Unix seconds, UTC. A file here is never changed once it was released: its checksum is kept in every database.

-- What only workspaces in CI systems have.
CREATE TABLE ci_workspaces (
    workspace_id INTEGER PRIMARY KEY REFERENCES workspaces (id),
    -- The name that the operator gave the CI system.
    provider     TEXT    NOT NULL,
    -- Names what its runs leave to each other; not to be guessed.
    cache_key    TEXT    NOT NULL UNIQUE,
    project_url  TEXT,
    project_ref  TEXT,
    tags         TEXT    NOT NULL CHECK (json_valid(tags)),
    -- Runs in a row that ended by themselves, and when the next may begin.
    failures     INTEGER NOT NULL DEFAULT 0,
    retry_at     INTEGER
) STRICT;

CREATE INDEX ci_workspaces_by_provider ON ci_workspaces (provider, workspace_id);

-- Its runs, one pipeline each.
CREATE TABLE ci_runs (
    workspace_id   INTEGER NOT NULL REFERENCES workspaces (id),
    -- Counts them, from 1.
    number         INTEGER NOT NULL CHECK (number > 0),
    -- Names the run before the CI system does: stored first, so that it is found again whatever happens.
    run_key        TEXT    NOT NULL UNIQUE,
    -- The generation of the intent that it was made for.
    intent         INTEGER NOT NULL,
    -- The CI system's names for it: the pipeline, and the one that this started.
    pipeline       TEXT,
    child_pipeline TEXT,
    -- Where people see it.
    web_url        TEXT,
    -- The token of its agent, where there is one; its text sealed for as long as the run lives.
    token_id       INTEGER REFERENCES tokens (id),
    token_sealed   BLOB,
    intended_at    INTEGER NOT NULL,
    -- When the CI system was last asked to make it.
    asked_at       INTEGER,
    -- When its job began, and its agent came.
    started_at     INTEGER,
    up_at          INTEGER,
    -- When it was told to end, and the CI system asked to end it.
    stop_at        INTEGER,
    cancel_at      INTEGER,
    ended_at       INTEGER,
    -- Why it ended, for people.
    failure        TEXT,
    PRIMARY KEY (workspace_id, number)
) STRICT, WITHOUT ROWID;

-- Whatever happens, of one workspace no two live.
CREATE UNIQUE INDEX ci_runs_live ON ci_runs (workspace_id) WHERE ended_at IS NULL;
CREATE INDEX ci_runs_by_pipeline ON ci_runs (pipeline) WHERE pipeline IS NOT NULL;
CREATE INDEX ci_runs_by_child ON ci_runs (child_pipeline) WHERE child_pipeline IS NOT NULL;
