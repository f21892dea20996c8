-- What was taken away or changed of who may do what, so that whoever remembers it learns of that without asking for each: read
-- every second. Written by the database itself, whichever program makes the change, in the same transaction.
-- A file here is never changed once it was released: its checksum is kept in every database.

CREATE TABLE access_changes (
    -- AUTOINCREMENT: an id is never used again, also of rows that were cleared away.
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    -- The token's hash in hexadecimal digits, the user's name, the workspace's name.
    name TEXT NOT NULL
) STRICT;

CREATE TRIGGER tokens_changed AFTER UPDATE ON tokens
WHEN OLD.revoked_at IS NOT NEW.revoked_at OR OLD.expires_at IS NOT NEW.expires_at OR OLD.hash IS NOT NEW.hash BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('token', hex(OLD.hash));
END;
CREATE TRIGGER tokens_deleted AFTER DELETE ON tokens BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('token', hex(OLD.hash));
END;

CREATE TRIGGER users_added AFTER INSERT ON users BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('user', NEW.name);
END;
CREATE TRIGGER users_changed AFTER UPDATE ON users
WHEN OLD.disabled_at IS NOT NEW.disabled_at OR OLD.groups IS NOT NEW.groups BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('user', OLD.name);
END;
CREATE TRIGGER users_deleted AFTER DELETE ON users BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('user', OLD.name);
END;

CREATE TRIGGER workspaces_changed AFTER UPDATE ON workspaces BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('workspace', OLD.name);
END;
CREATE TRIGGER workspaces_deleted AFTER DELETE ON workspaces BEGIN
    INSERT INTO access_changes (kind, name) VALUES ('workspace', OLD.name);
END;

CREATE TRIGGER shares_added AFTER INSERT ON shares BEGIN
    INSERT INTO access_changes (kind, name) SELECT 'workspace', name FROM workspaces WHERE id = NEW.workspace_id;
END;
CREATE TRIGGER shares_changed AFTER UPDATE ON shares BEGIN
    INSERT INTO access_changes (kind, name) SELECT 'workspace', name FROM workspaces WHERE id = OLD.workspace_id;
END;
CREATE TRIGGER shares_deleted AFTER DELETE ON shares BEGIN
    INSERT INTO access_changes (kind, name) SELECT 'workspace', name FROM workspaces WHERE id = OLD.workspace_id;
END;

CREATE TRIGGER lifecycles_changed AFTER UPDATE ON lifecycles WHEN OLD.desired IS NOT NEW.desired BEGIN
    INSERT INTO access_changes (kind, name) SELECT 'workspace', name FROM workspaces WHERE id = OLD.workspace_id;
END;

CREATE TRIGGER ci_runs_added AFTER INSERT ON ci_runs BEGIN
    INSERT INTO access_changes (kind, name) SELECT 'workspace', name FROM workspaces WHERE id = NEW.workspace_id;
END;
CREATE TRIGGER ci_runs_changed AFTER UPDATE ON ci_runs
WHEN OLD.stop_at IS NOT NEW.stop_at OR OLD.ended_at IS NOT NEW.ended_at BEGIN
    INSERT INTO access_changes (kind, name) SELECT 'workspace', name FROM workspaces WHERE id = OLD.workspace_id;
END;
