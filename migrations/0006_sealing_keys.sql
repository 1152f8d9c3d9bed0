-- What state is sealed with that clients carry from one request to the next: every replica opens what another sealed.

CREATE TABLE sealing_keys (
    purpose    text        PRIMARY KEY,
    key        bytea       NOT NULL, -- HMAC-SHA256
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT sealing_keys_are_long_enough CHECK (octet_length(key) = 32)
);
