-- The label of the devices that a key reaches; null: all.
ALTER TABLE api_keys
    ADD COLUMN device_label text,
    ADD CONSTRAINT api_keys_device_label_is_short CHECK (octet_length(device_label) BETWEEN 1 AND 63);
