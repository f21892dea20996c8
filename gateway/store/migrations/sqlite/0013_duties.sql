-- Background work that one replica does for all of them, and which replica that is.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE duties (
    name  TEXT PRIMARY KEY NOT NULL,
    -- The replica; NULL for free work. A replica whose lease is over has nothing. Writes of the work lock this row, so that the
    -- next owner begins after the last write of the one before.
    owner INTEGER
);

INSERT INTO duties (name) VALUES ('ci'), ('environments'), ('sweeps'), ('timers');
