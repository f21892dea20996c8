-- Sign-ins that several gateways on one database share: what is under way between two requests of a browser, wrong codes, and
-- ends of sessions in the feed of changes.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- A step of a sign-in that the next request of its browser takes, at whichever gateway that arrives. Each can be taken once.
CREATE TABLE sign_in_steps (
    -- SHA-256 of the code that the browser comes with.
    id      BYTEA  PRIMARY KEY CHECK (octet_length(id) = 32),
    -- 'link', 'provider', 'transfer', or 'spent' for what must not count a second time.
    kind    TEXT   COLLATE "C" NOT NULL,
    -- What the code stands for, sealed with the key of `store.key_file`.
    sealed  BYTEA  NOT NULL,
    -- Milliseconds since 1970, by the database's clock.
    ends_at BIGINT NOT NULL
);

CREATE INDEX sign_in_steps_by_end ON sign_in_steps (ends_at);

-- Wrong codes of programs, by the user or the address that typed them.
CREATE TABLE sign_in_guesses (
    key     TEXT   COLLATE "C" PRIMARY KEY,
    -- The first of them, in milliseconds since 1970 by the database's clock.
    since   BIGINT NOT NULL,
    guesses BIGINT NOT NULL
);

CREATE INDEX device_sign_ins_by_code ON device_sign_ins (user_code);

-- Only gateways that have others read these: one alone has ended its sessions by itself.
CREATE FUNCTION note_end_of_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM replicas) THEN
        INSERT INTO access_changes (kind, name) VALUES ('session', upper(encode(OLD.id, 'hex')));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER browser_sessions_deleted AFTER DELETE ON browser_sessions FOR EACH ROW EXECUTE FUNCTION note_end_of_session();
