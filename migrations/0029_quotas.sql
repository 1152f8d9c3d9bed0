-- Quotas of organisations: what the operator set in place of the defaults, and of which ones they were warned.

-- The number of an organisation's memories. First: the later statements lock `orgs` for reads, too, but not for long.
CREATE INDEX memories_by_org ON memories (org_id);

ALTER TABLE orgs
    ADD COLUMN quotas           jsonb  NOT NULL DEFAULT '{}', -- amounts by name; 0 is unlimited
    ADD COLUMN quotas_warned    text[] NOT NULL DEFAULT '{}', -- names of quotas that are nearly used up
    ADD COLUMN quotas_checked_at timestamptz NOT NULL DEFAULT '-infinity', -- when its use was measured last for warnings
    ADD CONSTRAINT orgs_quotas_is_an_object CHECK (jsonb_typeof(quotas) = 'object');
CREATE INDEX orgs_with_quotas ON orgs (id) WHERE quotas <> '{}';
CREATE INDEX orgs_warned ON orgs (id) WHERE quotas_warned <> '{}';
CREATE INDEX orgs_by_quota_check ON orgs (quotas_checked_at);
CREATE TRIGGER audited_quotas AFTER UPDATE OF quotas ON orgs
    FOR EACH ROW WHEN (OLD.quotas <> NEW.quotas) EXECUTE FUNCTION audit('org', '', 'quotas');
