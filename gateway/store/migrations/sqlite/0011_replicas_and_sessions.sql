-- Several gateways on one database: which of them live, and which has the session of which agent. All times are the database's.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- One row for each start of a gateway's process.
CREATE TABLE replicas (
    -- Grows, and is never used again.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    peer_url   TEXT NOT NULL,
    version    TEXT NOT NULL,
    -- These have to be the same in all replicas that live.
    zone       TEXT NOT NULL,
    public_url TEXT NOT NULL,
    state      TEXT NOT NULL,
    -- Milliseconds since 1970.
    since      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

-- One row for each agent that ever had a session; written when that changes hands, and not while it lives.
CREATE TABLE sessions (
    -- 1: a workspace, 2: a cluster.
    kind       INTEGER NOT NULL,
    subject    INTEGER NOT NULL,
    -- Grows with each claim.
    generation INTEGER NOT NULL,
    -- The replica; NULL for a free place. A replica whose lease is over has nothing.
    owner      INTEGER,
    -- Number of the agent's process.
    instance   INTEGER NOT NULL,
    PRIMARY KEY (kind, subject)
);

CREATE INDEX sessions_of_owner ON sessions (owner, kind, subject);

-- No generation up to this one is given out again: that of rows that were removed.
CREATE TABLE session_floor (
    id         INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL
);

INSERT INTO session_floor (id, generation) VALUES (1, 0);
