-- Browsers that are signed in and programs that wait for it, so that both outlive the gateway's process; and names of
-- workspaces that are no more. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE browser_sessions (
    -- SHA-256 of the id that the browser has. Nothing here leads to it.
    id               BLOB    PRIMARY KEY CHECK (length(id) = 32),
    -- The session of the public host that one of a workspace host hangs on, and that host; empty and none for the former.
    parent           BLOB    NOT NULL CHECK (length(parent) IN (0, 32)),
    host             TEXT    CHECK ((host IS NULL) = (length(parent) = 0)),
    user_name        TEXT    NOT NULL,
    -- The identity provider, the subject that it signed in, and its name of that session; none in dev mode.
    issuer           TEXT,
    subject          TEXT,
    provider_session TEXT,
    -- The address that it began from.
    peer             TEXT    NOT NULL,
    opened_at        INTEGER NOT NULL,
    -- Its last use, to some minutes.
    used_at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX browser_sessions_by_user ON browser_sessions (user_name);

CREATE TABLE device_sign_ins (
    -- SHA-256 of the code that the program polls with.
    device    BLOB    PRIMARY KEY CHECK (length(device) = 32),
    -- SHA-256 of the code that its user confirms; good for ten minutes.
    user_code BLOB    NOT NULL CHECK (length(user_code) = 32),
    machine   TEXT    NOT NULL,
    peer      TEXT    NOT NULL,
    asked_at  INTEGER NOT NULL,
    answer    TEXT    NOT NULL CHECK (answer IN ('none', 'yes', 'no')),
    -- The user that said yes.
    user_name TEXT    CHECK ((answer = 'yes') = (user_name IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- The last owner of a name. Browsers keep what pages of its address have stored in them, so it is not given to others at once.
CREATE TABLE former_names (
    name    TEXT    PRIMARY KEY,
    owner   TEXT    NOT NULL,
    left_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX former_names_by_time ON former_names (left_at);
