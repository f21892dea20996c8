-- The certificate that replicas share, and which of them orders the next one.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE shared_certificate (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- With its key, and the account that ordered it; NULL: there is none yet.
    sealed BLOB NULL,
    -- Random number of the process that orders; it counts until `ends_at`, in milliseconds of the database's clock.
    orderer INTEGER NOT NULL,
    ends_at INTEGER NOT NULL
) STRICT;
INSERT INTO shared_certificate (id, sealed, orderer, ends_at) VALUES (1, NULL, 0, 0);
