-- What is remembered of devices while they sleep. Live presence is in the bus, not here.

-- Ids are compared byte by byte, so that pages have one order in every locale and in the bus.
CREATE TABLE devices (
    org_id      uuid             NOT NULL REFERENCES orgs (id),
    device_id   text COLLATE "C" NOT NULL,
    epoch       bigint           NOT NULL, -- the newest connection that was told of; older news never overwrites newer
    first_seen  timestamptz      NOT NULL,
    last_seen   timestamptz      NOT NULL,
    left_reason text, -- why that connection ended; null while it lasts
    PRIMARY KEY (org_id, device_id),
    CONSTRAINT devices_id_length CHECK (octet_length(device_id) BETWEEN 1 AND 64),
    CONSTRAINT devices_seen_in_order CHECK (first_seen <= last_seen)
);

-- Services objects, each kept once per organisation however many devices share a firmware.
-- `json` and not `jsonb`: callers get back the very bytes that the device sent.
CREATE TABLE registration_contents (
    org_id     uuid        NOT NULL REFERENCES orgs (id),
    digest     bytea       NOT NULL,
    services   json        NOT NULL,
    told_at    timestamptz NOT NULL DEFAULT now(), -- edges tell a text again while devices register it
    PRIMARY KEY (org_id, digest),
    CONSTRAINT registration_contents_digest_is_sha256 CHECK (octet_length(digest) = 32)
);

-- What each device offers. No foreign key to the contents: they travel in another fact,
-- which a second replica may be writing at this moment.
CREATE TABLE service_registrations (
    org_id        uuid             NOT NULL,
    device_id     text COLLATE "C" NOT NULL,
    digest        bytea            NOT NULL,
    epoch         bigint           NOT NULL,
    registered_at timestamptz      NOT NULL,
    PRIMARY KEY (org_id, device_id),
    FOREIGN KEY (org_id, device_id) REFERENCES devices (org_id, device_id) ON DELETE CASCADE,
    CONSTRAINT service_registrations_digest_is_sha256 CHECK (octet_length(digest) = 32)
);
