-- Sign-ins that several gateways on one database share: what is under way between two requests of a browser, wrong codes, and
-- ends of sessions in the feed of changes.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- A step of a sign-in that the next request of its browser takes, at whichever gateway that arrives. Each can be taken once.
CREATE TABLE sign_in_steps (
    -- SHA-256 of the code that the browser comes with.
    id      BLOB    PRIMARY KEY CHECK (length(id) = 32),
    -- 'link', 'provider', 'transfer', or 'spent' for what must not count a second time.
    kind    TEXT    NOT NULL,
    -- What the code stands for, sealed with the key of `store.key_file`.
    sealed  BLOB    NOT NULL,
    -- Milliseconds since 1970, by the database's clock.
    ends_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sign_in_steps_by_end ON sign_in_steps (ends_at);

-- Wrong codes of programs, by the user or the address that typed them.
CREATE TABLE sign_in_guesses (
    key     TEXT    PRIMARY KEY,
    -- The first of them, in milliseconds since 1970 by the database's clock.
    since   INTEGER NOT NULL,
    guesses INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX device_sign_ins_by_code ON device_sign_ins (user_code);

-- Only gateways that have others read these: one alone has ended its sessions by itself.
CREATE TRIGGER browser_sessions_deleted AFTER DELETE ON browser_sessions WHEN EXISTS (SELECT 1 FROM replicas) BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('session', hex(OLD.id));
END;
