-- Who but the owner may reach a port of a workspace. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE shares (
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    port         BIGINT NOT NULL CHECK (port BETWEEN 1 AND 65535),
    audience     TEXT   COLLATE "C" NOT NULL CHECK (audience IN ('user', 'group', 'signed-in', 'public')),
    -- The user's or group's name; empty for the others, so that the key below works (NULLs would all differ).
    subject      TEXT   COLLATE "C" NOT NULL CHECK ((audience IN ('user', 'group')) = (subject <> '')),
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    PRIMARY KEY (workspace_id, port, audience, subject)
);

-- What is public is asked for as a whole, again and again.
CREATE INDEX shares_public ON shares (workspace_id, port) WHERE audience = 'public';
