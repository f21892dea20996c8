-- How far the start of a workspace's pod is, as its cluster's agent reported it: JSON. NULL: no pod of it is about to start.
-- A file here is never changed once it was released: its checksum is kept in every database.

ALTER TABLE kubernetes_workspaces ADD COLUMN start_progress TEXT NULL;
