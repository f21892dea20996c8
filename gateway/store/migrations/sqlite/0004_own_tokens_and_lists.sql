-- What users see and do themselves: notes on tokens, successors of rotated ones, lists by who may see them.
-- A file here is never changed once it was released: its checksum is kept in every database.

ALTER TABLE tokens ADD COLUMN note TEXT;

-- The token that took this one's place; this one is good until its `expires_at`.
ALTER TABLE tokens ADD COLUMN replaced_by INTEGER REFERENCES tokens (id);

CREATE INDEX tokens_by_user ON tokens (user_name, id) WHERE user_name IS NOT NULL;

-- What is shared with somebody, for the list of their workspaces.
CREATE INDEX shares_by_subject ON shares (audience, subject, workspace_id) WHERE subject <> '';
