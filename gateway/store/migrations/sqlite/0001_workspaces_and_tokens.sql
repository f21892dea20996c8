-- Workspaces and the tokens of agents and users. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE workspaces (
    -- AUTOINCREMENT: an id is never used again, so an old id cannot mean a newer workspace.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE,
    owner      TEXT    NOT NULL,
    executor   TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX workspaces_by_owner ON workspaces (owner, name);

CREATE TABLE tokens (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    kind         TEXT    NOT NULL,
    workspace_id INTEGER REFERENCES workspaces (id),
    user_name    TEXT,
    -- SHA-256 of the token's text; the text itself is shown once and kept nowhere.
    hash         BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    hint         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    CHECK (
        (kind = 'agent' AND workspace_id IS NOT NULL AND user_name IS NULL)
        OR (kind = 'user' AND workspace_id IS NULL AND user_name IS NOT NULL)
    )
) STRICT;

CREATE INDEX tokens_by_workspace ON tokens (workspace_id) WHERE workspace_id IS NOT NULL;
