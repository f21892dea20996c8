-- Several gateways on one database: which of them live, and which has the session of which agent. All times are the database's.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- One row for each start of a gateway's process.
CREATE TABLE replicas (
    -- Grows, and is never used again.
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    peer_url   TEXT NOT NULL,
    version    TEXT NOT NULL,
    -- These have to be the same in all replicas that live.
    zone       TEXT NOT NULL,
    public_url TEXT NOT NULL,
    state      TEXT NOT NULL,
    -- Milliseconds since 1970.
    since      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- One row for each agent that ever had a session; written when that changes hands, and not while it lives.
CREATE TABLE sessions (
    -- 1: a workspace, 2: a cluster.
    kind       BIGINT NOT NULL,
    subject    BIGINT NOT NULL,
    -- Grows with each claim.
    generation BIGINT NOT NULL,
    -- The replica; NULL for a free place. A replica whose lease is over has nothing.
    owner      BIGINT,
    -- Number of the agent's process.
    instance   BIGINT NOT NULL,
    PRIMARY KEY (kind, subject)
);

CREATE INDEX sessions_of_owner ON sessions (owner, kind, subject);

-- No generation up to this one is given out again: that of rows that were removed.
CREATE TABLE session_floor (
    id         BIGINT PRIMARY KEY,
    generation BIGINT NOT NULL
);

INSERT INTO session_floor (id, generation) VALUES (1, 0);
