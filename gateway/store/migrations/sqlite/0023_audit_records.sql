-- The audit log of all replicas, where operators search it.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE audit_records (
    -- Grows in the order in which records were stored.
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    -- One process start or command, and the number of the record there: what is stored again after an answer was lost is one row.
    source    INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    -- Milliseconds since 1970, by the clock of the process.
    at        INTEGER NOT NULL,
    event     TEXT NOT NULL,
    -- A user's name, or operator/UID, job/PROJECT#NUMBER or hook.
    actor     TEXT NULL,
    workspace TEXT NULL,
    -- Address of the client.
    peer      TEXT NULL,
    trace     TEXT NULL,
    -- The process start among those of all replicas; NULL for one gateway alone, and for commands.
    replica   INTEGER NULL,
    -- The line of the log: a JSON object, in ASCII.
    line      TEXT NOT NULL,
    UNIQUE (source, number)
) STRICT;

CREATE INDEX audit_records_by_time ON audit_records (at, id);
CREATE INDEX audit_records_by_event ON audit_records (event, id);
CREATE INDEX audit_records_by_actor ON audit_records (actor, id) WHERE actor IS NOT NULL;
CREATE INDEX audit_records_by_workspace ON audit_records (workspace, id) WHERE workspace IS NOT NULL;

-- Removal of old records.
INSERT INTO duties (name) VALUES ('audit');
