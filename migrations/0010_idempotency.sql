-- Answers to requests that made something under an idempotency key. A row is written by the transaction that makes the
-- thing, so there is either both or neither.

CREATE TABLE idempotent_requests (
    key_hash    bytea       PRIMARY KEY, -- of the organisation, the caller and the key
    org_id      uuid        REFERENCES orgs (id), -- null: the operator's
    fingerprint bytea       NOT NULL, -- of method, path and body, so that another request under the same key is noticed
    status      integer     NOT NULL,
    location    text, -- the answer's headers that matter
    etag        text,
    media_type  text        NOT NULL,
    body        bytea       NOT NULL,
    sealed      boolean     NOT NULL, -- the body holds a secret, and only the credential that it was given to opens it
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL, -- from then on the key is free again
    CONSTRAINT idempotent_requests_key_hash_is_sha256 CHECK (octet_length(key_hash) = 32),
    CONSTRAINT idempotent_requests_fingerprint_is_sha256 CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT idempotent_requests_status_is_http CHECK (status BETWEEN 100 AND 599)
);

CREATE INDEX idempotent_requests_by_expiry ON idempotent_requests (expires_at);
