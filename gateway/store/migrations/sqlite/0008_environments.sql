-- Environments of CI jobs in clusters: what the gateway made there for them, and the jobs that it was made for.
-- Times are Unix seconds, UTC. A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE environments (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster_id        INTEGER NOT NULL REFERENCES clusters (id),
    -- The CI system's number for the project, and where that was last.
    project_id        INTEGER NOT NULL,
    project_path      TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    slug              TEXT    NOT NULL,
    tier              TEXT,
    url               TEXT,
    -- What marks its objects as its own; not to be guessed, so that no other gateway's environment has the same.
    inventory         TEXT    NOT NULL UNIQUE,
    state             TEXT    NOT NULL CHECK (state IN ('available', 'stopping', 'stopped')),
    since             INTEGER NOT NULL,
    -- Why it is stopped, where it was not somebody's wish.
    reason            TEXT,
    -- What the last job that was prepared said: template, what becomes of the objects, and as whom the agent acts.
    template          TEXT,
    deletion          TEXT    NOT NULL CHECK (deletion IN ('on_stop', 'never')),
    identity          TEXT,
    -- What may be in the cluster, as JSON: written before it is made.
    tracked           TEXT    NOT NULL,
    is_removal_due    INTEGER NOT NULL DEFAULT 0 CHECK (is_removal_due IN (0, 1)),
    -- What keeps a removal from its end, as JSON.
    blockers          TEXT,
    -- Tries in a row that failed, why, and when the next one is.
    failures          INTEGER NOT NULL DEFAULT 0,
    failure_code      TEXT,
    failure           TEXT,
    retry_at          INTEGER,
    -- Counts changes of the row.
    revision          INTEGER NOT NULL DEFAULT 0,
    UNIQUE (cluster_id, project_id, slug)
) STRICT;

CREATE INDEX environments_by_project ON environments (project_id);
CREATE INDEX environments_to_remove ON environments (id) WHERE is_removal_due = 1;

CREATE TABLE environment_jobs (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    environment_id INTEGER NOT NULL REFERENCES environments (id),
    -- The CI system's number for the job; none for what an operator asked for.
    job_id         INTEGER,
    status         TEXT    NOT NULL CHECK (status IN ('preparing', 'completed', 'failed')),
    template       TEXT    NOT NULL,
    deletion       TEXT    NOT NULL CHECK (deletion IN ('on_stop', 'never')),
    identity       TEXT,
    -- What is to be made, as JSON, ready to be sent; empty once the job is prepared or not.
    objects        TEXT    NOT NULL,
    -- The same as names, and at the end what is there.
    tracked        TEXT    NOT NULL,
    -- Why it failed, and of each object why.
    code           TEXT,
    failure        TEXT,
    errors         TEXT,
    made_at        INTEGER NOT NULL,
    give_up_at     INTEGER NOT NULL,
    finished_at    INTEGER,
    UNIQUE (environment_id, job_id)
) STRICT;

CREATE INDEX environment_jobs_preparing ON environment_jobs (environment_id) WHERE status = 'preparing';
CREATE INDEX environment_jobs_by_end ON environment_jobs (finished_at) WHERE finished_at IS NOT NULL;

-- Projects that are no more: what they had is stopped, and no job of theirs has anything made again.
CREATE TABLE environment_projects_gone (
    project_id INTEGER PRIMARY KEY,
    since      INTEGER NOT NULL
) STRICT;

-- The last good text of each template of a cluster.
CREATE TABLE environment_templates (
    cluster_id INTEGER NOT NULL REFERENCES clusters (id),
    name       TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    PRIMARY KEY (cluster_id, name)
) STRICT, WITHOUT ROWID;
