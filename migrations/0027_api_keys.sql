-- Keys that expire, keys that only issue tokens of devices whose ids begin alike, and when a key was used last.
ALTER TABLE api_keys
    ADD COLUMN expires_at    timestamptz, -- null: never
    ADD COLUMN device_prefix text,        -- null: any device
    ADD COLUMN last_used_at  timestamptz, -- to the minute; null: not used yet
    ADD CONSTRAINT api_keys_device_prefix_length CHECK (char_length(device_prefix) BETWEEN 1 AND 64);
