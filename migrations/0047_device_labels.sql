-- The labels and the note that people give a device, whether or not it has registered services. A device without either has no row.
CREATE TABLE device_labels (
    org_id    uuid             NOT NULL REFERENCES orgs (id),
    device_id text COLLATE "C" NOT NULL,
    labels    text[]           NOT NULL, -- in byte order, each once
    note      text             NOT NULL,
    PRIMARY KEY (org_id, device_id),
    CONSTRAINT device_labels_id_length CHECK (octet_length(device_id) BETWEEN 1 AND 64),
    CONSTRAINT device_labels_count CHECK (cardinality(labels) <= 16),
    CONSTRAINT device_labels_note_length CHECK (char_length(note) <= 2000)
);

CREATE POLICY of_one_org ON device_labels USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE device_labels ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- Ids of devices are not UUIDs: of a device, an entry has the name, and in `resource_id` a hash of it.
ALTER TABLE audit_log ADD COLUMN device_id text COLLATE "C";

CREATE FUNCTION audit_device_labels() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    none jsonb := '{"labels": [], "note": ""}';
    after jsonb := CASE WHEN TG_OP = 'DELETE' THEN none ELSE to_jsonb(NEW) END;
    before jsonb := CASE WHEN TG_OP = 'INSERT' THEN none ELSE to_jsonb(OLD) END;
    subject jsonb := CASE WHEN TG_OP = 'DELETE' THEN before ELSE after END;
    changed text[] := ARRAY(SELECT name FROM differing(before, after) AS name WHERE name IN ('labels', 'note') ORDER BY 1);
BEGIN
    IF changed <> '{}' AND NOT speaks_for_everyone() THEN
        INSERT INTO audit_log (id, org_id, actor, action, resource, resource_id, device_id, changed)
        VALUES (uuid_by_time(), (subject ->> 'org_id')::uuid,
                COALESCE(NULLIF(current_setting('switchboard.actor', true), ''), 'switchboard'),
                'changed', 'device', md5(subject ->> 'device_id')::uuid, subject ->> 'device_id', changed);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER audited AFTER INSERT OR UPDATE OR DELETE ON device_labels
    FOR EACH ROW EXECUTE FUNCTION audit_device_labels();
