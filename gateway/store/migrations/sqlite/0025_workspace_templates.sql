-- The operator's template that a workspace was made from, by its name, and the values of its parameters: a JSON object of texts.
-- NULL: it was made from a devfile. Both are what was so at its creation, whatever became of the template.
-- A file here is never changed once it was released: its checksum is kept in every database.

ALTER TABLE kubernetes_workspaces ADD COLUMN template TEXT NULL;
ALTER TABLE kubernetes_workspaces ADD COLUMN template_parameters TEXT NULL;
