-- What a replica reports of itself while it lives, and what the operator asked of it.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- Sessions of agents that dialed it.
ALTER TABLE replicas ADD COLUMN agents INTEGER NOT NULL DEFAULT 0;
-- Relay lanes that end there, and those that pass through.
ALTER TABLE replicas ADD COLUMN lanes_ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE replicas ADD COLUMN lanes_carried INTEGER NOT NULL DEFAULT 0;
-- 0: nothing; 1: to drain; 2: to drain and wait for nothing.
ALTER TABLE replicas ADD COLUMN drain_asked INTEGER NOT NULL DEFAULT 0;
