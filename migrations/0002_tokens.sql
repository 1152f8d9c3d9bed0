-- What access tokens are signed with, and which ones were issued.

CREATE TABLE signing_keys (
    kid        text        PRIMARY KEY,
    seed       bytea       NOT NULL, -- Ed25519 private key
    created_at timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz, -- signs no more, still verifies
    CONSTRAINT signing_keys_seed_is_ed25519 CHECK (octet_length(seed) = 32)
);

-- One key signs at a time: replicas that start together agree on it through this index.
CREATE UNIQUE INDEX signing_keys_one_active ON signing_keys ((true)) WHERE retired_at IS NULL;

-- The token itself is not kept: it is verified by its signature, and a row here can only revoke it.
CREATE TABLE tokens (
    id         uuid        PRIMARY KEY,
    org_id     uuid        NOT NULL REFERENCES orgs (id),
    subject    text        NOT NULL,
    scopes     text[]      NOT NULL,
    issued_at  timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT tokens_have_scopes CHECK (cardinality(scopes) > 0),
    CONSTRAINT tokens_expire_after_issue CHECK (expires_at > issued_at)
);

CREATE INDEX tokens_revoked_by_expiry ON tokens (expires_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX tokens_by_expiry ON tokens (expires_at);
CREATE INDEX tokens_by_org ON tokens (org_id, id);
