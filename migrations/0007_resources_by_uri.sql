-- Lists of resources are read in the order of their URIs, those with expressions apart from those without.

ALTER TABLE resources ADD COLUMN is_template boolean NOT NULL GENERATED ALWAYS AS (prefix IS NOT NULL) STORED;

CREATE INDEX resources_by_uri ON resources (org_id, is_template, uri);
