-- With a master key, which is not in the database, the keys that sign and seal are stored encrypted: the column of the
-- clear key is null then.
ALTER TABLE signing_keys
    ALTER COLUMN seed DROP NOT NULL,
    ADD COLUMN wrapped       bytea, -- nonce, encrypted seed, tag of ChaCha20-Poly1305
    ADD COLUMN master_key_id text,  -- of the key that encrypted it
    ADD CONSTRAINT signing_keys_are_clear_or_wrapped
        CHECK ((seed IS NULL) = (wrapped IS NOT NULL) AND (wrapped IS NULL) = (master_key_id IS NULL));

ALTER TABLE sealing_keys
    ALTER COLUMN key DROP NOT NULL,
    ADD COLUMN wrapped       bytea,
    ADD COLUMN master_key_id text,
    ADD CONSTRAINT sealing_keys_are_clear_or_wrapped
        CHECK ((key IS NULL) = (wrapped IS NOT NULL) AND (wrapped IS NULL) = (master_key_id IS NULL));
