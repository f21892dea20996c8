-- Amounts that a workspace asks of its cluster, so that they can be added up: from its frozen objects, which never change.
-- NULL: it was made by a version that did not write them; they are read from its objects once a sum is asked for.
-- A file here is never changed once it was released: its checksum is kept in every database.

-- Thousandths of a processor.
ALTER TABLE kubernetes_workspaces ADD COLUMN cpu_millis BIGINT NULL;
ALTER TABLE kubernetes_workspaces ADD COLUMN memory_bytes BIGINT NULL;
-- Bytes of its claims.
ALTER TABLE kubernetes_workspaces ADD COLUMN storage_bytes BIGINT NULL;
