-- The bytes of an organisation's stored responses, for its quota of stored results.
CREATE INDEX idempotent_requests_by_org ON idempotent_requests (org_id);
