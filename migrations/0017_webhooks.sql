-- Webhooks: where organisations want to be told of events, and what is still to be told. Whatever happens is written
-- here by the transaction that it happens in, so that a crash loses neither the event nor the news of it.

CREATE TABLE webhooks (
    id                  uuid        PRIMARY KEY,
    org_id              uuid        NOT NULL REFERENCES orgs (id),
    url                 text        NOT NULL,
    description         text,
    events              text[]      NOT NULL,
    enabled             boolean     NOT NULL,
    disabled_reason     text, -- when nobody of the organisation asked for it
    secret              bytea       NOT NULL, -- sealed
    former_secret       bytea, -- sealed; signs as well until then
    former_secret_until timestamptz,
    failing_since       timestamptz, -- null since something arrived last
    dropped             bigint      NOT NULL DEFAULT 0, -- events for which there was no room
    version             bigint      NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    UNIQUE (org_id, id),
    CONSTRAINT webhooks_url_length CHECK (octet_length(url) BETWEEN 1 AND 2048),
    CONSTRAINT webhooks_listen_to_something CHECK (cardinality(events) > 0),
    CONSTRAINT webhooks_disabled_for_a_reason CHECK (NOT enabled OR disabled_reason IS NULL),
    CONSTRAINT webhooks_former_secrets_end CHECK ((former_secret IS NULL) = (former_secret_until IS NULL))
);

CREATE TABLE webhook_deliveries (
    id              uuid        PRIMARY KEY, -- in the order of their making
    org_id          uuid        NOT NULL,
    webhook_id      uuid        NOT NULL,
    event           text        NOT NULL,
    event_id        uuid        NOT NULL, -- however often an event is told, it goes to a webhook once
    subject         text, -- the device, of news that newer news makes void
    payload         text, -- null once it has arrived
    state           text        NOT NULL DEFAULT 'pending',
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz, -- while one is under way: when it counts as failed
    last_attempt_at timestamptz,
    last_status     integer,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    ended_at        timestamptz,
    FOREIGN KEY (org_id, webhook_id) REFERENCES webhooks (org_id, id) ON DELETE CASCADE,
    UNIQUE (webhook_id, event_id),
    CONSTRAINT webhook_deliveries_state_is_known CHECK (state IN ('pending', 'delivered', 'failed')),
    CONSTRAINT webhook_deliveries_pending_ones_are_due CHECK ((state = 'pending') = (next_attempt_at IS NOT NULL)),
    CONSTRAINT webhook_deliveries_pending_ones_can_be_sent CHECK (state <> 'pending' OR payload IS NOT NULL),
    CONSTRAINT webhook_deliveries_ends_are_dated CHECK ((state = 'pending') = (ended_at IS NULL))
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_unsent ON webhook_deliveries (webhook_id, subject)
    WHERE state = 'pending' AND attempts = 0 AND subject IS NOT NULL;
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (created_at);

CREATE POLICY of_one_org ON webhooks USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
CREATE POLICY of_one_org ON webhook_deliveries
    USING (org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone()));
ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE webhook_deliveries ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- Enters events for all enabled webhooks that listen to them; says how many found no room.
CREATE FUNCTION tell_webhooks(orgs uuid[], events text[], ids uuid[], subjects text[], payloads text[], due timestamptz[])
RETURNS bigint LANGUAGE sql VOLATILE AS $$
    WITH told AS (
        SELECT * FROM unnest(orgs, events, ids, subjects, payloads, due) WITH ORDINALITY
            AS told (org_id, event, event_id, subject, payload, due_at, place)),
    wanted AS (
        SELECT hook.id AS webhook_id, told.*, row_number() OVER (PARTITION BY hook.id ORDER BY told.place) AS number
        FROM told JOIN webhooks hook ON hook.org_id = told.org_id AND hook.enabled AND told.event = ANY (hook.events)),
    room AS (
        SELECT concerned.webhook_id, 5000 - (
            SELECT count(*) FROM (
                SELECT FROM webhook_deliveries waiting
                WHERE waiting.webhook_id = concerned.webhook_id AND waiting.state = 'pending' LIMIT 5000) one) AS free
        FROM (SELECT DISTINCT webhook_id FROM wanted) concerned),
    added AS (
        INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, subject, payload, next_attempt_at)
        SELECT uuid_by_time(), org_id, webhook_id, event, event_id, subject, payload, due_at
        FROM wanted JOIN room USING (webhook_id) WHERE number <= free ORDER BY place
        ON CONFLICT (webhook_id, event_id) DO NOTHING),
    dropped AS (
        UPDATE webhooks hook SET dropped = hook.dropped + missed.events
        FROM (SELECT webhook_id, count(*) AS events FROM wanted JOIN room USING (webhook_id) WHERE number > free
              GROUP BY webhook_id) missed
        WHERE hook.id = missed.webhook_id
        RETURNING missed.events)
    SELECT coalesce(sum(dropped.events), 0)::bigint FROM dropped
$$;

-- A time as the API writes it.
CREATE FUNCTION rfc3339(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- A call that nobody waits for has ended, whoever ended it. What the device answered stands in the payload byte for
-- byte, unless it is too long.
CREATE FUNCTION tell_of_call_end() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    call_id text := 'call_' || replace(NEW.call_id::text, '-', '');
    head    text;
    answer  text;
    tail    text;
BEGIN
    IF NOT EXISTS (SELECT FROM webhooks WHERE org_id = NEW.org_id AND enabled AND 'call.finished' = ANY (events)) THEN
        RETURN NULL;
    END IF;
    head := json_build_object(
        'call_id', call_id, 'device_id', NEW.device_id, 'service', NEW.service, 'mode', NEW.mode, 'state', NEW.state,
        'created_at', rfc3339(NEW.created_at), 'ended_at', rfc3339(NEW.ended_at),
        'outcome', NEW.outcome, 'delivered', NEW.delivered);
    tail := ', "result_at": "/v1/calls/' || call_id || '"';
    -- An end is put on record whatever is in it.
    BEGIN
        IF octet_length(NEW.answer) <= 16384 THEN
            answer := convert_from(NEW.answer, 'UTF8');
            IF NEW.outcome IN ('succeeded', 'failed') THEN
                tail := CASE WHEN answer = '' THEN '' ELSE ', "result": ' || answer END;
            ELSE
                tail := coalesce(', "detail": ' || (answer::json -> 'detail')::text, '')
                    || coalesce(', "errors": ' || nullif((answer::json -> 'errors')::text, '[]'), '');
            END IF;
        END IF;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        NULL;
    END;
    PERFORM tell_webhooks(ARRAY[NEW.org_id], ARRAY['call.finished'], ARRAY[NEW.call_id], ARRAY[NULL::text],
        ARRAY['{"type": "call.finished", "timestamp": "' || rfc3339(NEW.ended_at) || '", "data": '
              || left(head, -1) || tail || '}}'], ARRAY[now()]);
    RETURN NULL;
END
$$;

CREATE TRIGGER calls_tell_of_their_end AFTER UPDATE OF state ON calls
    FOR EACH ROW WHEN (OLD.state <> 'ended' AND NEW.state = 'ended') EXECUTE FUNCTION tell_of_call_end();

-- Deliveries are nobody's doing, and have a record of their own.
CREATE TRIGGER audited AFTER INSERT OR DELETE OR UPDATE OF url, description, events, enabled, secret ON webhooks
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION audit('webhook');
