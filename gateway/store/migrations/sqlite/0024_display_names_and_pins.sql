-- What people add to their workspaces. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- The name that people read; the address keeps the workspace's own.
ALTER TABLE workspaces ADD COLUMN display_name TEXT;

-- Workspaces that a user wants to see first.
CREATE TABLE pins (
    user_name    TEXT NOT NULL,
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    PRIMARY KEY (user_name, workspace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX pins_of_workspace ON pins (workspace_id);
