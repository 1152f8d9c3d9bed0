-- Devices that an administrator deleted, and the newest connection that was known then: events of it that arrive later do not
-- bring the device back. Rows are kept as long as events may take.
CREATE TABLE forgotten_devices (
    org_id       uuid             NOT NULL REFERENCES orgs (id),
    device_id    text COLLATE "C" NOT NULL,
    epoch        bigint           NOT NULL,
    forgotten_at timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (org_id, device_id)
);

CREATE INDEX forgotten_devices_by_time ON forgotten_devices (forgotten_at);

CREATE POLICY of_one_org ON forgotten_devices USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE forgotten_devices ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- The tokens of one device or client, newest first.
CREATE INDEX tokens_by_subject ON tokens (org_id, subject, id);
