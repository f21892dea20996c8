-- Which workspaces and environments changed, so that a replica finds what no other one has announced to it: read every second.
-- Written by the database itself, in the transaction of the change, and only while there are replicas. Rows are only added: an
-- update of one row for each subject would make transactions wait for each other that have nothing else in common.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE changed_rows (
    -- AUTOINCREMENT: an id is never used again, also of rows that were cleared away.
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- 1: a workspace, 2: an environment.
    kind    INTEGER NOT NULL,
    subject INTEGER NOT NULL
) STRICT;

CREATE TRIGGER lifecycles_added_row AFTER INSERT ON lifecycles
WHEN EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (1, NEW.workspace_id);
END;
CREATE TRIGGER lifecycles_changed_row AFTER UPDATE ON lifecycles
WHEN EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (1, OLD.workspace_id);
END;
CREATE TRIGGER lifecycles_deleted_row AFTER DELETE ON lifecycles
WHEN EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (1, OLD.workspace_id);
END;

CREATE TRIGGER ci_runs_changed_row AFTER UPDATE ON ci_runs
WHEN (OLD.web_url IS NOT NEW.web_url OR OLD.stop_at IS NOT NEW.stop_at OR OLD.ended_at IS NOT NEW.ended_at)
    AND EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (1, OLD.workspace_id);
END;

CREATE TRIGGER environments_changed_row AFTER UPDATE ON environments
WHEN EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (2, OLD.id);
END;
CREATE TRIGGER environments_deleted_row AFTER DELETE ON environments
WHEN EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (2, OLD.id);
END;

-- A preparation begins and mostly ends with a change of its environment's row.
CREATE TRIGGER environment_jobs_changed_row AFTER UPDATE ON environment_jobs
WHEN OLD.status IS NOT NEW.status
    AND EXISTS (SELECT 1 FROM replicas WHERE expires_at > unixepoch('subsec') * 1000) BEGIN
    INSERT INTO changed_rows (kind, subject) VALUES (2, OLD.environment_id);
END;
