-- Memories can be changed. Their versions are for If-Match.
ALTER TABLE memories ADD COLUMN version bigint NOT NULL DEFAULT 1;

CREATE TRIGGER audited_change AFTER UPDATE ON memories
    FOR EACH ROW WHEN (pg_trigger_depth() = 0 AND OLD.version <> NEW.version) EXECUTE FUNCTION audit('memory');

-- A text that has changed is embedded again. A worker that has read the former one leaves it in the queue, by its version.
CREATE FUNCTION changed_text_waits_to_be_embedded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM embedding_models) THEN
        INSERT INTO embedding_queue (memory_id, owner_id)
        VALUES (NEW.id, coalesce(NEW.org_id, '00000000-0000-0000-0000-000000000000'))
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER changed_text_waits_to_be_embedded AFTER UPDATE OF text ON memories
    FOR EACH ROW WHEN (OLD.text <> NEW.text) EXECUTE FUNCTION changed_text_waits_to_be_embedded();
