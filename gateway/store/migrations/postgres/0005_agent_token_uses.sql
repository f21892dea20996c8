-- Tokens of CI jobs that an agent has come with: each is good for one process. Times are Unix seconds, UTC.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE agent_token_uses (
    issuer       TEXT   COLLATE "C" NOT NULL,
    -- What of the token, or of its job, is unique at the issuer.
    use_id       TEXT   COLLATE "C" NOT NULL,
    -- SHA-256 of the token's text, by which the token is known again when it has expired.
    token_hash   BYTEA  NOT NULL CHECK (octet_length(token_hash) = 32),
    -- SHA-256 of the number that the agent's process drew for itself.
    process_hash BYTEA  NOT NULL CHECK (octet_length(process_hash) = 32),
    workspace_id BIGINT NOT NULL REFERENCES workspaces (id),
    used_at      BIGINT NOT NULL,
    -- Until when the process may come back with it.
    until        BIGINT NOT NULL,
    -- From when on it is worth nothing to anybody, used or not.
    forget_at    BIGINT NOT NULL CHECK (forget_at >= until),
    PRIMARY KEY (issuer, use_id)
);

CREATE INDEX agent_token_uses_by_token ON agent_token_uses (token_hash);
CREATE INDEX agent_token_uses_by_end ON agent_token_uses (forget_at);
