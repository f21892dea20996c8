-- People who signed in with an identity provider, or whom the operator has disabled. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE users (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Who it is: the provider's name for them, which never means anybody else there. NULL until their first sign-in.
    issuer      TEXT,
    subject     TEXT,
    -- How they are called here: for good, whatever the provider calls them later.
    name        TEXT    NOT NULL UNIQUE,
    -- A JSON list of the groups that the provider named at the last sign-in.
    groups      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- The last sign-in.
    last_seen   INTEGER,
    disabled_at INTEGER,
    UNIQUE (issuer, subject),
    CHECK ((issuer IS NULL) = (subject IS NULL))
) STRICT;
