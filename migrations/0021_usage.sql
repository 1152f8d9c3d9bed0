-- What organisations use: calls by hour and outcome, added up by all gateways.
CREATE TABLE usage_calls (
    org_id       uuid        NOT NULL REFERENCES orgs (id),
    hour         timestamptz NOT NULL,
    outcome      text        NOT NULL,
    calls        bigint      NOT NULL,
    milliseconds bigint      NOT NULL, -- of all of them together
    PRIMARY KEY (org_id, hour, outcome),
    CONSTRAINT usage_calls_whole_hours CHECK (extract(epoch FROM hour)::bigint % 3600 = 0)
);

CREATE INDEX usage_calls_by_hour ON usage_calls (hour);

-- The last batch of each process that counts: a batch whose answer was lost is sent again, and not counted twice.
CREATE TABLE usage_batches (
    counter    uuid        PRIMARY KEY,
    batch      bigint      NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);

CREATE POLICY of_one_org ON usage_calls USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
CREATE POLICY of_the_installation ON usage_batches USING ((SELECT speaks_for_everyone()));
ALTER TABLE usage_calls ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_batches ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
