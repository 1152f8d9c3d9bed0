-- Who changed which setting, and when. Triggers write it, in the transaction that changes the setting: a writer can neither
-- forget it nor be on record for what was not done. It holds names of fields and never what stood in them.

CREATE TABLE audit_log (
    id          uuid        PRIMARY KEY,
    org_id      uuid        REFERENCES orgs (id), -- null: what the operator did to what is public
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text        NOT NULL, -- an API key's id, a token's subject, 'operator', or 'switchboard' by itself
    action      text        NOT NULL,
    resource    text        NOT NULL, -- what kind of thing
    resource_id uuid        NOT NULL, -- which may be gone
    changed     text[]      NOT NULL, -- names of fields
    CONSTRAINT audit_log_action CHECK (action IN ('created', 'changed', 'removed', 'revoked'))
);

CREATE INDEX audit_log_by_org ON audit_log (org_id, id);
CREATE INDEX audit_log_by_resource ON audit_log (resource_id, id);
CREATE INDEX audit_log_by_time ON audit_log (at);

-- Nobody changes an entry; housekeeping alone removes old ones.
CREATE POLICY read_by_their_owner ON audit_log FOR SELECT
    USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone())
           OR (org_id IS NULL AND (SELECT speaks_for_installation())));
CREATE POLICY made_by_their_owner ON audit_log FOR INSERT
    WITH CHECK (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone())
                OR (org_id IS NULL AND (SELECT speaks_for_installation())));
CREATE POLICY removed_by_housekeeping ON audit_log FOR DELETE USING ((SELECT speaks_for_everyone()));
ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- Version 7: in the order of their making, to the millisecond.
CREATE FUNCTION uuid_by_time() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

-- The members in which two objects differ.
CREATE FUNCTION differing(before jsonb, after jsonb) RETURNS SETOF text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT key FROM jsonb_each(before) was FULL JOIN jsonb_each(after) is_now USING (key)
    WHERE was.value IS DISTINCT FROM is_now.value
$$;

-- The first argument is the resource, the second the action when it is not the statement's own and not empty. Further ones
-- are the columns that may be named, when not all may.
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    after jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}' ELSE to_jsonb(NEW) END;
    before jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}' ELSE to_jsonb(OLD) END;
    subject jsonb := CASE WHEN TG_OP = 'DELETE' THEN before ELSE after END;
    changed text[] := '{}';
BEGIN
    -- Housekeeping and the reading of books are nobody's doing.
    IF speaks_for_everyone() THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        changed := ARRAY(
            SELECT name FROM differing(before, after) AS name
            WHERE name NOT IN ('version', 'updated_at', 'prompt_name', 'revision', 'terms', 'overrides')
                  AND (TG_NARGS < 3 OR name = ANY (TG_ARGV[2:]))
            UNION ALL
            SELECT 'overrides.' || name FROM differing(before -> 'overrides', after -> 'overrides') AS name
            UNION ALL
            SELECT 'device_ids'
            WHERE after ->> 'id' = ANY (string_to_array(current_setting('switchboard.bound', true), ' '))
            ORDER BY 1);
    END IF;
    INSERT INTO audit_log (id, org_id, actor, action, resource, resource_id, changed)
    VALUES (uuid_by_time(),
            CASE TG_TABLE_NAME WHEN 'orgs' THEN subject ->> 'id' ELSE subject ->> 'org_id' END::uuid,
            COALESCE(NULLIF(current_setting('switchboard.actor', true), ''), 'switchboard'),
            COALESCE(NULLIF(TG_ARGV[1], ''), CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'UPDATE' THEN 'changed' ELSE 'removed' END),
            TG_ARGV[0], (subject ->> 'id')::uuid, changed);
    RETURN NULL;
END
$$;

-- Remembers, until the transaction ends, which NPCs it gave a device or took one from.
CREATE FUNCTION note_binding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('switchboard.bound',
        concat_ws(' ', current_setting('switchboard.bound', true), COALESCE(NEW.npc_id, OLD.npc_id)), true);
    RETURN NULL;
END
$$;

-- What goes because something else goes has no entry of its own: that is at depth 1 and more.
CREATE TRIGGER audited AFTER INSERT ON orgs FOR EACH ROW EXECUTE FUNCTION audit('org');
CREATE TRIGGER audited AFTER INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION audit('api_key');
CREATE TRIGGER audited_revocation AFTER UPDATE OF revoked_at ON api_keys
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION audit('api_key', 'revoked');
CREATE TRIGGER audited AFTER INSERT ON tokens FOR EACH ROW EXECUTE FUNCTION audit('token');
CREATE TRIGGER audited_revocation AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION audit('token', 'revoked');
CREATE TRIGGER audited AFTER INSERT OR UPDATE OR DELETE ON templates
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('template');
CREATE TRIGGER audited AFTER INSERT OR DELETE ON npcs
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('npc');
-- Which devices it speaks through stands elsewhere: its entry is written when the transaction ends.
CREATE CONSTRAINT TRIGGER audited_change AFTER UPDATE ON npcs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('npc');
CREATE TRIGGER noted AFTER INSERT OR DELETE ON npc_devices FOR EACH ROW EXECUTE FUNCTION note_binding();
CREATE TRIGGER audited AFTER INSERT ON memories FOR EACH ROW EXECUTE FUNCTION audit('memory');
-- What has expired goes when its URI is used again.
CREATE TRIGGER audited_removal AFTER DELETE ON memories
    FOR EACH ROW WHEN (pg_trigger_depth() = 0 AND (OLD.expires_at IS NULL OR OLD.expires_at > now()))
    EXECUTE FUNCTION audit('memory');
CREATE TRIGGER audited AFTER INSERT OR DELETE ON pictures
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('picture');
CREATE TRIGGER audited AFTER INSERT OR DELETE ON skills_books
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('skills_book');
-- Finished or given up; parts have no entry each.
CREATE TRIGGER audited_change AFTER UPDATE OF state ON skills_books
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION audit('skills_book');
