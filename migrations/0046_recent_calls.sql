-- The journal: the latest synchronous calls of each organisation, for a day, and a bounded number of them.
ALTER TABLE orgs ADD COLUMN journal_params boolean NOT NULL DEFAULT false;
CREATE INDEX orgs_with_journal_params ON orgs (id) WHERE journal_params;
-- A statement that changes it names all settings, so that the audit log has its entry from the existing trigger.
CREATE TRIGGER orgs_count_journal_changes BEFORE UPDATE OF journal_params ON orgs
    FOR EACH ROW WHEN (OLD.journal_params IS DISTINCT FROM NEW.journal_params) EXECUTE FUNCTION count_change();

CREATE TABLE recent_calls (
    org_id       uuid             NOT NULL REFERENCES orgs (id),
    id           uuid             NOT NULL, -- in the order of their ends
    call_id      uuid             NOT NULL,
    ended_at     timestamptz      NOT NULL,
    device_id    text COLLATE "C" NOT NULL,
    service      text             NOT NULL,
    outcome      text             NOT NULL,
    delivered    text             NOT NULL,
    microseconds bigint           NOT NULL,
    via          text             NOT NULL,
    caller_kind  text             NOT NULL,
    caller_id    uuid,            -- null: the assistant of a device without an NPC
    subject      text,            -- of the caller's token
    params_bytes integer          NOT NULL,
    result_bytes integer          NOT NULL,
    params       text,            -- their beginning; of organisations with `journal_params`
    result       text,
    PRIMARY KEY (org_id, id),
    CONSTRAINT recent_calls_texts_are_short CHECK (octet_length(params) <= 4096 AND octet_length(result) <= 4096)
);

CREATE INDEX recent_calls_by_time ON recent_calls (ended_at);

CREATE POLICY of_one_org ON recent_calls USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE recent_calls ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- How many calls are not in the journal: above the rate of their organisation, or without room in a process.
CREATE TABLE left_out_calls (
    org_id uuid        NOT NULL REFERENCES orgs (id),
    hour   timestamptz NOT NULL,
    calls  bigint      NOT NULL,
    PRIMARY KEY (org_id, hour)
);

CREATE INDEX left_out_calls_by_time ON left_out_calls (hour);

CREATE POLICY of_one_org ON left_out_calls USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE left_out_calls ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- An organisation that no longer wants params and results in its journal loses those that it has.
CREATE FUNCTION forget_recent_params() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE recent_calls SET params = NULL, result = NULL WHERE org_id = NEW.id AND (params IS NOT NULL OR result IS NOT NULL);
    RETURN NULL;
END
$$;

CREATE TRIGGER orgs_forget_recent_params AFTER UPDATE OF journal_params ON orgs
    FOR EACH ROW WHEN (OLD.journal_params AND NOT NEW.journal_params) EXECUTE FUNCTION forget_recent_params();
