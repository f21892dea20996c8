-- Browsers that are signed in and programs that wait for it, so that both outlive the gateway's process; and names of
-- workspaces that are no more. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE browser_sessions (
    -- SHA-256 of the id that the browser has. Nothing here leads to it.
    id               BYTEA  PRIMARY KEY CHECK (octet_length(id) = 32),
    -- The session of the public host that one of a workspace host hangs on, and that host; empty and none for the former.
    parent           BYTEA  NOT NULL CHECK (octet_length(parent) IN (0, 32)),
    host             TEXT   COLLATE "C" CHECK ((host IS NULL) = (octet_length(parent) = 0)),
    user_name        TEXT   COLLATE "C" NOT NULL,
    -- The identity provider, the subject that it signed in, and its name of that session; none in dev mode.
    issuer           TEXT   COLLATE "C",
    subject          TEXT   COLLATE "C",
    provider_session TEXT   COLLATE "C",
    -- The address that it began from.
    peer             TEXT   COLLATE "C" NOT NULL,
    opened_at        BIGINT NOT NULL,
    -- Its last use, to some minutes.
    used_at          BIGINT NOT NULL
);

CREATE INDEX browser_sessions_by_user ON browser_sessions (user_name);

CREATE TABLE device_sign_ins (
    -- SHA-256 of the code that the program polls with.
    device    BYTEA  PRIMARY KEY CHECK (octet_length(device) = 32),
    -- SHA-256 of the code that its user confirms; good for ten minutes.
    user_code BYTEA  NOT NULL CHECK (octet_length(user_code) = 32),
    machine   TEXT   COLLATE "C" NOT NULL,
    peer      TEXT   COLLATE "C" NOT NULL,
    asked_at  BIGINT NOT NULL,
    answer    TEXT   COLLATE "C" NOT NULL CHECK (answer IN ('none', 'yes', 'no')),
    -- The user that said yes.
    user_name TEXT   COLLATE "C" CHECK ((answer = 'yes') = (user_name IS NOT NULL))
);

-- The last owner of a name. Browsers keep what pages of its address have stored in them, so it is not given to others at once.
CREATE TABLE former_names (
    name    TEXT   COLLATE "C" PRIMARY KEY,
    owner   TEXT   COLLATE "C" NOT NULL,
    left_at BIGINT NOT NULL
);

CREATE INDEX former_names_by_time ON former_names (left_at);
