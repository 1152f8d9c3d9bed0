-- Revocations in the order of their time, and the live tokens of an organisation.
CREATE INDEX tokens_by_revocation ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX tokens_by_org_and_expiry ON tokens (org_id, expires_at);

-- The operator refuses all credentials of a suspended organisation.
ALTER TABLE orgs
    ADD COLUMN suspended_at timestamptz; -- null: not suspended
CREATE INDEX orgs_suspended ON orgs (id) WHERE suspended_at IS NOT NULL;
CREATE TRIGGER audited_suspension AFTER UPDATE OF suspended_at ON orgs
    FOR EACH ROW WHEN ((OLD.suspended_at IS NULL) <> (NEW.suspended_at IS NULL)) EXECUTE FUNCTION audit('org');
