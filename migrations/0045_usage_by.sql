-- What organisations use, by day and by device, service or NPC. Of each organisation, day and dimension a bounded number of
-- keys has rows of its own; the rest is in the row with the key ''.
CREATE TABLE usage_by (
    org_id            uuid             NOT NULL REFERENCES orgs (id),
    day               timestamptz      NOT NULL,
    dimension         text             NOT NULL,
    key               text COLLATE "C" NOT NULL,
    outcome           text             NOT NULL, -- of the calls; '' in rows of turns
    calls             bigint           NOT NULL,
    milliseconds      bigint           NOT NULL, -- of all calls together
    turns             bigint           NOT NULL,
    prompt_tokens     bigint           NOT NULL,
    completion_tokens bigint           NOT NULL,
    cost              double precision NOT NULL, -- of all tokens together
    PRIMARY KEY (org_id, dimension, day, key, outcome),
    CONSTRAINT usage_by_dimension CHECK (dimension IN ('device', 'service', 'npc')),
    CONSTRAINT usage_by_whole_days CHECK (extract(epoch FROM day)::bigint % 86400 = 0)
);

CREATE INDEX usage_by_day ON usage_by (day);

CREATE POLICY of_one_org ON usage_by USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE usage_by ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
