-- Which services models may call, of organisations that require it. An approval is of one text: of the digest of what a model
-- sees of the service and what its calls are checked against.
ALTER TABLE orgs
    ADD COLUMN model_approval text NOT NULL DEFAULT 'off',
    ADD CONSTRAINT orgs_model_approval CHECK (model_approval IN ('off', 'required'));
CREATE INDEX orgs_with_approval ON orgs (id) WHERE model_approval = 'required';
-- A statement that changes it names all settings, so that the audit log has its entry from the existing trigger.
CREATE TRIGGER orgs_count_approval_changes BEFORE UPDATE OF model_approval ON orgs
    FOR EACH ROW WHEN (OLD.model_approval IS DISTINCT FROM NEW.model_approval) EXECUTE FUNCTION count_change();

CREATE TABLE service_approvals (
    id          uuid             PRIMARY KEY,
    org_id      uuid             NOT NULL REFERENCES orgs (id),
    device_id   text COLLATE "C", -- null: every device of the organisation that declares this service
    service     text COLLATE "C" NOT NULL,
    digest      bytea            NOT NULL,
    definition  text             NOT NULL, -- what was approved, as JSON; jsonb does not hold every string
    approved_at timestamptz      NOT NULL DEFAULT now(),
    approved_by text             NOT NULL, -- an API key's id or a token's subject
    CONSTRAINT service_approvals_digest_is_sha256 CHECK (octet_length(digest) = 32)
);

-- A device has one text of a service; the devices of an organisation may have several.
CREATE UNIQUE INDEX service_approvals_of_devices ON service_approvals (org_id, device_id, service) WHERE device_id IS NOT NULL;
CREATE UNIQUE INDEX service_approvals_of_orgs ON service_approvals (org_id, service, digest) WHERE device_id IS NULL;

CREATE INDEX service_approvals_by_org ON service_approvals (org_id, id);

CREATE POLICY of_one_org ON service_approvals USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE service_approvals ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE TRIGGER audited AFTER INSERT OR DELETE OR UPDATE OF digest ON service_approvals
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('approval');
