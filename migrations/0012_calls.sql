-- Calls that outlive the connection that asked for them. What is answered 202 is here first, and nothing is sent to a
-- device before it stands here that it may be: after a crash a call is lost, and not made a second time.

CREATE TABLE calls (
    call_id    uuid             PRIMARY KEY,
    org_id     uuid             NOT NULL REFERENCES orgs (id),
    device_id  text COLLATE "C" NOT NULL, -- need not be known: a call may wait for a device that was never there
    mode       text             NOT NULL,
    state      text             NOT NULL,
    position   bigint           NOT NULL GENERATED ALWAYS AS IDENTITY, -- first in, first out within a device
    service    text             NOT NULL,
    params     bytea, -- of queued calls, until they have ended
    input      bytea,
    timeout_ms integer          NOT NULL,
    key_hash   bytea, -- its row in idempotent_calls, if it has one
    attempts   integer          NOT NULL DEFAULT 0, -- how often it was about to be sent
    expires_at timestamptz, -- of queued calls: from then on it is not sent any more
    deadline   timestamptz, -- while it is sent: when that attempt is over, whatever happened
    outcome    text,
    delivered  text,
    answer     bytea, -- the device's result or the refusal, byte for byte
    created_at timestamptz      NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    CONSTRAINT calls_mode CHECK (mode IN ('async', 'queued')),
    CONSTRAINT calls_state CHECK (state IN ('queued', 'sent', 'ended')),
    CONSTRAINT calls_only_queued_ones_wait CHECK (mode = 'queued' OR state <> 'queued'),
    CONSTRAINT calls_queued_ones_expire CHECK ((mode = 'queued') = (expires_at IS NOT NULL)),
    CONSTRAINT calls_queued_ones_can_be_sent CHECK (mode <> 'queued' OR state = 'ended' OR params IS NOT NULL),
    CONSTRAINT calls_sent_ones_have_a_deadline CHECK ((state = 'sent') = (deadline IS NOT NULL)),
    CONSTRAINT calls_ends_are_whole CHECK (
        (state = 'ended') = (outcome IS NOT NULL)
        AND (state = 'ended') = (delivered IS NOT NULL)
        AND (state = 'ended') = (answer IS NOT NULL)
        AND (state = 'ended') = (ended_at IS NOT NULL)
    ),
    CONSTRAINT calls_key_hash_is_sha256 CHECK (octet_length(key_hash) = 32)
);

-- The head of a device's queue, and how many wait.
CREATE INDEX calls_queued ON calls (org_id, device_id, position) WHERE state = 'queued';
CREATE INDEX calls_by_expiry ON calls (expires_at) WHERE state = 'queued';
CREATE INDEX calls_by_deadline ON calls (deadline) WHERE state = 'sent';
CREATE INDEX calls_sent ON calls (org_id, device_id) WHERE state = 'sent';
CREATE INDEX calls_by_end ON calls (ended_at) WHERE state = 'ended';
CREATE INDEX calls_listed ON calls (org_id, call_id);
CREATE INDEX calls_listed_by_device ON calls (org_id, device_id, call_id);

-- One row for each device that calls wait for. Whoever holds its lock is the one that takes from the queue.
CREATE TABLE call_queues (
    org_id    uuid             NOT NULL REFERENCES orgs (id),
    device_id text COLLATE "C" NOT NULL,
    due_at    timestamptz      NOT NULL, -- when it is looked at next, unless its device comes online before
    PRIMARY KEY (org_id, device_id)
);

CREATE INDEX call_queues_due ON call_queues (due_at);
