-- Organisations and the keys that their backends hold.

CREATE TABLE orgs (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT orgs_name_length CHECK (char_length(name) BETWEEN 1 AND 100)
);

-- Only a hash of the secret is kept. The secret has 256 bits of entropy, so a fast hash is as good as a slow one.
CREATE TABLE api_keys (
    id          uuid        PRIMARY KEY,
    org_id      uuid        NOT NULL REFERENCES orgs (id),
    name        text        NOT NULL,
    prefix      text        NOT NULL, -- how the secret begins, so that people recognise it
    secret_hash bytea       NOT NULL,
    scopes      text[]      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz,
    CONSTRAINT api_keys_secret_hash_unique UNIQUE (secret_hash),
    CONSTRAINT api_keys_secret_hash_is_sha256 CHECK (octet_length(secret_hash) = 32),
    CONSTRAINT api_keys_name_length CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_keys_prefix_length CHECK (char_length(prefix) BETWEEN 1 AND 16),
    CONSTRAINT api_keys_have_scopes CHECK (cardinality(scopes) > 0)
);

CREATE INDEX api_keys_by_org ON api_keys (org_id, id);
