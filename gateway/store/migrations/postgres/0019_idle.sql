-- When workspaces were used last, and when they are stopped for idleness.
-- Times are Unix seconds, UTC. A file here is never changed once it was released: its checksum is kept in every database.

-- A workspace without a row was never used, and its owner has said nothing.
CREATE TABLE idle (
    workspace_id       BIGINT PRIMARY KEY REFERENCES workspaces (id),
    -- Time limit that the owner wants, in seconds: NULL as the operator says, 0 none.
    wanted_seconds     BIGINT,
    -- Time limit in force; NULL: none.
    limit_seconds      BIGINT,
    -- What counted last, and by which user.
    active_at          BIGINT,
    activity           TEXT,
    active_user        TEXT,
    kept_until         BIGINT,
    -- Generation of the lifecycle that a stop for idleness began.
    stopped_generation BIGINT,
    -- Counts the writes of the row, so that a stop is not carried out on what has changed since it was decided.
    idle_revision      BIGINT NOT NULL
);
