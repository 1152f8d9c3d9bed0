-- The services that a key reaches; null: all. `device_prefix` restricts the devices of any key from now on.
ALTER TABLE api_keys
    ADD COLUMN services text[],
    ADD CONSTRAINT api_keys_services_count CHECK (cardinality(services) BETWEEN 1 AND 32);
