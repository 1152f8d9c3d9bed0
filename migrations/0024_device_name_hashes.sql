-- Devices by the hash in the generated part of their tools' names: the first four bytes of the SHA-256 of their id.
-- A column and not an index over the expression: row-level security applies only leakproof operators before its policy,
-- so the index would not be used. Ids have no backslash, which alone is special in the format `escape`.
ALTER TABLE devices
    ADD COLUMN name_hash bytea NOT NULL GENERATED ALWAYS AS (substr(sha256(decode(device_id, 'escape')), 1, 4)) STORED;

CREATE INDEX devices_by_name_hash ON devices (org_id, name_hash);
