-- Workspaces that the gateway itself starts and stops: what is wanted, what was seen, and what a cluster needs to know.
-- Times are Unix seconds, UTC. A file here is never changed once it was released: its checksum is kept in every database.

-- Kubernetes clusters, each with an agent that reconciles its workspaces.
CREATE TABLE clusters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

-- How a cluster was configured, version by version. A workspace keeps the version that it was made with.
CREATE TABLE cluster_configs (
    cluster_id INTEGER NOT NULL REFERENCES clusters (id),
    version    INTEGER NOT NULL CHECK (version > 0),
    config     TEXT    NOT NULL CHECK (json_valid(config)),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (cluster_id, version)
) STRICT, WITHOUT ROWID;

-- The tokens once more, because SQLite cannot change what a table checks: clusters have tokens too.
CREATE TABLE tokens_new (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    kind         TEXT    NOT NULL,
    workspace_id INTEGER REFERENCES workspaces (id),
    user_name    TEXT,
    cluster_id   INTEGER REFERENCES clusters (id),
    -- SHA-256 of the token's text.
    hash         BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    hint         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    note         TEXT,
    -- The token that took this one's place; this one is good until its `expires_at`.
    replaced_by  INTEGER REFERENCES tokens_new (id),
    CHECK (
        (kind = 'agent' AND workspace_id IS NOT NULL AND user_name IS NULL AND cluster_id IS NULL)
        OR (kind = 'user' AND workspace_id IS NULL AND user_name IS NOT NULL AND cluster_id IS NULL)
        OR (kind = 'cluster' AND workspace_id IS NULL AND user_name IS NULL AND cluster_id IS NOT NULL)
    )
) STRICT;

INSERT INTO tokens_new (id, kind, workspace_id, user_name, hash, hint, created_at, expires_at, revoked_at, note, replaced_by)
    SELECT id, kind, workspace_id, user_name, hash, hint, created_at, expires_at, revoked_at, note, replaced_by FROM tokens;

-- Ids stay used up.
UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM sqlite_sequence WHERE name IN ('tokens', 'tokens_new'))
    WHERE name = 'tokens_new';

DROP TABLE tokens;
ALTER TABLE tokens_new RENAME TO tokens;

CREATE INDEX tokens_by_workspace ON tokens (workspace_id) WHERE workspace_id IS NOT NULL;
CREATE INDEX tokens_by_user ON tokens (user_name, id) WHERE user_name IS NOT NULL;

-- What is wanted of a workspace and what was seen of it, whoever runs it.
CREATE TABLE lifecycles (
    workspace_id INTEGER PRIMARY KEY REFERENCES workspaces (id),
    desired      TEXT    NOT NULL,
    actual       TEXT    NOT NULL,
    -- Counts what was wanted, one after the other.
    generation   INTEGER NOT NULL CHECK (generation > 0),
    desired_at   INTEGER NOT NULL,
    actual_at    INTEGER NOT NULL,
    -- Why it is so, for people.
    reason       TEXT,
    -- Counts changes of the row, so that nobody overwrites what they have not read.
    revision     INTEGER NOT NULL
) STRICT;

-- What the owner gave, as it was given. Beside the row above, which changes often, because this is long and never does.
CREATE TABLE devfiles (
    workspace_id INTEGER PRIMARY KEY REFERENCES workspaces (id),
    devfile      TEXT    NOT NULL
) STRICT;

-- What only workspaces in clusters have.
CREATE TABLE kubernetes_workspaces (
    workspace_id       INTEGER PRIMARY KEY REFERENCES workspaces (id),
    cluster_id         INTEGER NOT NULL REFERENCES clusters (id),
    config_version     INTEGER NOT NULL,
    namespace          TEXT    NOT NULL,
    -- The highest generation that the cluster's agent has applied.
    applied_generation INTEGER NOT NULL DEFAULT 0,
    deployment_version TEXT,
    -- What is still to go, as JSON, for people.
    termination        TEXT,
    reported_at        INTEGER,
    FOREIGN KEY (cluster_id, config_version) REFERENCES cluster_configs (cluster_id, version)
) STRICT;

CREATE INDEX kubernetes_workspaces_by_cluster ON kubernetes_workspaces (cluster_id, workspace_id);

-- The Kubernetes objects, fixed when the workspace was made. Never changed.
CREATE TABLE kubernetes_frozen (
    workspace_id INTEGER PRIMARY KEY REFERENCES workspaces (id),
    frozen       TEXT    NOT NULL CHECK (json_valid(frozen))
) STRICT;

-- Secrets of workspaces, sealed with the key of `store.key_file`.
CREATE TABLE variables (
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    kind         TEXT    NOT NULL CHECK (kind IN ('env', 'file')),
    name         TEXT    NOT NULL,
    sealed       BLOB    NOT NULL,
    PRIMARY KEY (workspace_id, kind, name)
) STRICT, WITHOUT ROWID;

-- A known text, sealed: who opens it has the right key.
CREATE TABLE seals (
    name   TEXT PRIMARY KEY,
    sealed BLOB NOT NULL
) STRICT, WITHOUT ROWID;
