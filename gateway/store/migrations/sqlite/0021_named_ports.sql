-- Ports of a workspace that its devfile or the request for it named, and how to speak to the apps there.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE named_ports (
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    port         INTEGER NOT NULL CHECK (port BETWEEN 1 AND 65535),
    name         TEXT,
    protocol     TEXT    NOT NULL,
    host         TEXT    NOT NULL,
    -- The audience that the devfile wants; nothing is open by it. NULL: none.
    proposed     TEXT,
    PRIMARY KEY (workspace_id, port)
) STRICT, WITHOUT ROWID;
