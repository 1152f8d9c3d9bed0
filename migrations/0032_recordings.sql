-- Recordings of what users say to devices: of organisations that switch them on, until they are older than their retention.
ALTER TABLE orgs
    ADD COLUMN record_speech boolean NOT NULL DEFAULT false,
    ADD COLUMN recording_retention_days integer NOT NULL DEFAULT 30,
    ADD CONSTRAINT orgs_recording_retention_range CHECK (recording_retention_days BETWEEN 1 AND 365);
-- A statement that changes these names all settings, so that the audit log has its entry from the existing trigger.
CREATE TRIGGER orgs_count_recording_changes BEFORE UPDATE OF record_speech, recording_retention_days ON orgs
    FOR EACH ROW WHEN ((OLD.record_speech, OLD.recording_retention_days)
                       IS DISTINCT FROM (NEW.record_speech, NEW.recording_retention_days))
    EXECUTE FUNCTION count_change();

CREATE TABLE recordings (
    id          uuid        PRIMARY KEY,
    org_id      uuid        NOT NULL REFERENCES orgs (id),
    device_id   text        NOT NULL,
    duration_ms integer     NOT NULL,
    size_bytes  bigint      NOT NULL,
    sha256      bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT recordings_are_not_empty CHECK (size_bytes > 0 AND duration_ms > 0),
    CONSTRAINT recordings_sha256_is_sha256 CHECK (octet_length(sha256) = 32)
);

CREATE INDEX recordings_by_org ON recordings (org_id, id);
CREATE INDEX recordings_by_device ON recordings (org_id, device_id, id);
CREATE INDEX recordings_by_time ON recordings (org_id, created_at);

CREATE POLICY of_one_org ON recordings USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE recordings ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE TRIGGER audited_removal AFTER DELETE ON recordings
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('recording');
