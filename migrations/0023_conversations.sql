-- What conversations need: how a template's character converses, who answers for devices to which no NPC is bound, and
-- what conversations come to.

ALTER TABLE templates
    ADD COLUMN conversation jsonb NOT NULL DEFAULT '{}'; -- what is not in it holds as when nothing is set

-- The NPC is one of the organisation's own, and when it goes, nobody answers in its place.
ALTER TABLE orgs
    ADD COLUMN default_npc_id uuid,
    ADD COLUMN version bigint NOT NULL DEFAULT 1,
    ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now(),
    ADD CONSTRAINT orgs_default_npc_exists FOREIGN KEY (id, default_npc_id) REFERENCES npcs (org_id, id)
        ON DELETE SET NULL (default_npc_id);

-- Organisations are none of anybody's own below.
SELECT set_config('switchboard.speaker', 'everyone', true);
UPDATE orgs SET updated_at = created_at;

-- Whatever changes it counts, also that its NPC is removed: who has seen it before has not seen that.
CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.version := OLD.version + 1;
    NEW.updated_at := now();
    RETURN NEW;
END
$$;

CREATE TRIGGER orgs_count_changes BEFORE UPDATE OF name, default_npc_id ON orgs
    FOR EACH ROW WHEN ((OLD.name, OLD.default_npc_id) IS DISTINCT FROM (NEW.name, NEW.default_npc_id))
    EXECUTE FUNCTION count_change();
CREATE TRIGGER audited_change AFTER UPDATE OF name, default_npc_id ON orgs
    FOR EACH ROW WHEN (pg_trigger_depth() = 0 AND OLD.version <> NEW.version) EXECUTE FUNCTION audit('org');

-- Turns of conversations by hour, added up by all that answer them.
CREATE TABLE usage_turns (
    org_id            uuid             NOT NULL REFERENCES orgs (id),
    hour              timestamptz      NOT NULL,
    turns             bigint           NOT NULL,
    prompt_tokens     bigint           NOT NULL,
    completion_tokens bigint           NOT NULL,
    cost              double precision NOT NULL, -- of all of them together
    PRIMARY KEY (org_id, hour),
    CONSTRAINT usage_turns_whole_hours CHECK (extract(epoch FROM hour)::bigint % 3600 = 0),
    CONSTRAINT usage_turns_cost_is_a_number CHECK (cost >= 0 AND cost < 'infinity')
);

CREATE INDEX usage_turns_by_hour ON usage_turns (hour);

CREATE POLICY of_one_org ON usage_turns USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE usage_turns ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
