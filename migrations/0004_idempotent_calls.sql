-- Calls that were made under an idempotency key. They are here and not in the bus, because a device
-- must not act twice only because the bus restarted empty.

CREATE TABLE idempotent_calls (
    org_id      uuid        NOT NULL REFERENCES orgs (id),
    key_hash    bytea       NOT NULL, -- of the device, the caller and the key
    fingerprint bytea       NOT NULL, -- of the request, so that another one under the same key is noticed
    call_id     uuid        NOT NULL,
    deadline    timestamptz NOT NULL, -- a call without an outcome long after it is lost
    status      integer, -- HTTP status of the outcome; null until there is one
    body        bytea, -- its document, byte for byte
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL, -- from then on the key is free again
    PRIMARY KEY (org_id, key_hash),
    CONSTRAINT idempotent_calls_key_hash_is_sha256 CHECK (octet_length(key_hash) = 32),
    CONSTRAINT idempotent_calls_fingerprint_is_sha256 CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT idempotent_calls_status_is_http CHECK (status BETWEEN 100 AND 599),
    CONSTRAINT idempotent_calls_outcome_is_whole CHECK ((status IS NULL) = (body IS NULL)),
    CONSTRAINT idempotent_calls_outlive_their_deadline CHECK (expires_at > deadline)
);

CREATE INDEX idempotent_calls_by_expiry ON idempotent_calls (expires_at);
