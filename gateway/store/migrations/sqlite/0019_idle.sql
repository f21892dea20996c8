-- When workspaces were used last, and when they are stopped for idleness.
-- Times are Unix seconds, UTC. A file here is never changed once it was released: its checksum is kept in every database.

-- A workspace without a row was never used, and its owner has said nothing.
CREATE TABLE idle (
    workspace_id       INTEGER PRIMARY KEY REFERENCES workspaces (id),
    -- Time limit that the owner wants, in seconds: NULL as the operator says, 0 none.
    wanted_seconds     INTEGER,
    -- Time limit in force; NULL: none.
    limit_seconds      INTEGER,
    -- What counted last, and by which user.
    active_at          INTEGER,
    activity           TEXT,
    active_user        TEXT,
    kept_until         INTEGER,
    -- Generation of the lifecycle that a stop for idleness began.
    stopped_generation INTEGER,
    -- Counts the writes of the row, so that a stop is not carried out on what has changed since it was decided.
    idle_revision      INTEGER NOT NULL
) STRICT;
