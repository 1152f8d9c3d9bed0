-- Whether the result of a call matches the output schema of its service. Older releases write no value: their nodes do not check.
ALTER TABLE calls ADD COLUMN result_valid boolean NOT NULL DEFAULT true;

-- As in 0017, and with the mark of a result that does not match.
CREATE OR REPLACE FUNCTION tell_of_call_end() RETURNS trigger LANGUAGE plpgsql AS $$
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
    IF NOT NEW.result_valid THEN
        head := left(head, -1) || ', "result_valid": false}';
    END IF;
    tail := ', "result_at": "/v1/calls/' || call_id || '"';
    -- The end is stored whatever is in it.
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
