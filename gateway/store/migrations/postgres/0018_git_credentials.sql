-- Users' credentials for git servers. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE git_credentials (
    owner            TEXT COLLATE "C" NOT NULL,
    -- With a port unless that is 443.
    host             TEXT COLLATE "C" NOT NULL,
    -- basic: a password or token. oauth: a refresh token.
    kind             TEXT NOT NULL CHECK (kind IN ('basic', 'oauth')),
    -- The user's name at that server.
    user_name        TEXT NOT NULL,
    -- The password or refresh token.
    secret_sealed    BYTEA NOT NULL,
    -- Counts the changes of the secret: what was made of an older one is not written.
    version          BIGINT NOT NULL,
    -- oauth: the last access token, and the time until which it is given out.
    access_sealed    BYTEA NULL,
    access_until     BIGINT NOT NULL,
    -- When the access token itself ends.
    access_ends      BIGINT NOT NULL,
    -- oauth: until then one gateway exchanges the refresh token, and no other one does.
    refreshing_until BIGINT NOT NULL,
    -- When the server said that the refresh token does not count any more.
    refused_at       BIGINT NULL,
    created_at       BIGINT NOT NULL,
    PRIMARY KEY (owner, host)
);
