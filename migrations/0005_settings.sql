-- What people set up for agents: templates, what they remember, and pictures.
-- Rows without an organisation belong to the installation: its operator writes them and every organisation reads them.

CREATE TABLE pictures (
    id         uuid        PRIMARY KEY,
    org_id     uuid        REFERENCES orgs (id),
    name       text        NOT NULL,
    mime_type  text        NOT NULL, -- what the bytes are, whatever the sender called them
    width      integer     NOT NULL, -- pixels
    height     integer     NOT NULL,
    size_bytes bigint      NOT NULL,
    sha256     bytea       NOT NULL, -- of the bytes; with the organisation it names the object
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pictures_name_length CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT pictures_have_an_area CHECK (width > 0 AND height > 0),
    CONSTRAINT pictures_are_not_empty CHECK (size_bytes > 0),
    CONSTRAINT pictures_sha256_is_sha256 CHECK (octet_length(sha256) = 32)
);

CREATE INDEX pictures_by_org ON pictures (org_id, id);
CREATE INDEX pictures_by_content ON pictures (sha256, org_id);

CREATE TABLE templates (
    id              uuid             PRIMARY KEY,
    org_id          uuid             REFERENCES orgs (id),
    name            text             NOT NULL,
    avatar          uuid,
    locale          text,
    tags            text[]           NOT NULL,
    persona         jsonb            NOT NULL,
    model           jsonb,
    voice           jsonb,
    tools           jsonb            NOT NULL,
    skills_book_ids uuid[]           NOT NULL,
    memory          jsonb            NOT NULL,
    prompt          jsonb, -- null: the persona is the prompt
    prompt_name     text COLLATE "C" NOT NULL, -- what the prompt says, else the template's id
    version         bigint           NOT NULL DEFAULT 1,
    created_at      timestamptz      NOT NULL DEFAULT now(),
    updated_at      timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT templates_name_length CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT templates_prompt_name_length CHECK (octet_length(prompt_name) BETWEEN 1 AND 64)
);

CREATE INDEX templates_by_org ON templates (org_id, id);
-- Two indexes, because null is never equal to null. An organisation's own name hides the same one of the installation.
CREATE UNIQUE INDEX templates_prompt_name_unique ON templates (org_id, prompt_name) WHERE org_id IS NOT NULL;
CREATE UNIQUE INDEX templates_public_prompt_name_unique ON templates (prompt_name) WHERE org_id IS NULL;

-- Every picture that a template shows, its avatar included, so that none goes while it is shown.
CREATE TABLE template_pictures (
    template_id uuid NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    picture_id  uuid NOT NULL,
    PRIMARY KEY (template_id, picture_id),
    CONSTRAINT template_pictures_picture_exists FOREIGN KEY (picture_id) REFERENCES pictures (id)
);

CREATE INDEX template_pictures_by_picture ON template_pictures (picture_id);

CREATE TABLE memories (
    id          uuid             PRIMARY KEY,
    org_id      uuid             REFERENCES orgs (id),
    template_id uuid             REFERENCES templates (id) ON DELETE CASCADE,
    subject     text, -- whom it is about: an end user or a device
    text        text             NOT NULL,
    kind        text,
    importance  double precision NOT NULL,
    source      text,
    metadata    jsonb            NOT NULL,
    mime_type   text             NOT NULL,
    expires_at  timestamptz, -- from then on nobody reads it
    created_at  timestamptz      NOT NULL DEFAULT now(),
    -- One owner; there will be more kinds of owners than templates.
    CONSTRAINT memories_have_one_owner CHECK (num_nonnulls(template_id) = 1),
    CONSTRAINT memories_importance_range CHECK (importance BETWEEN 0 AND 1)
);

CREATE INDEX memories_by_template ON memories (template_id, id);

-- Under which URI agents read what: one space of names over memories and pictures.
CREATE TABLE resources (
    org_id      uuid             REFERENCES orgs (id),
    uri         text COLLATE "C" NOT NULL,
    prefix      text COLLATE "C", -- of a URI with expressions: what stands before the first; null without expressions
    memory_id   uuid UNIQUE      REFERENCES memories (id) ON DELETE CASCADE,
    picture_id  uuid UNIQUE      REFERENCES pictures (id) ON DELETE CASCADE,
    CONSTRAINT resources_uri_length CHECK (octet_length(uri) BETWEEN 1 AND 512),
    CONSTRAINT resources_lead_to_one_thing CHECK (num_nonnulls(memory_id, picture_id) = 1),
    CONSTRAINT resources_pictures_have_no_expressions CHECK (prefix IS NULL OR picture_id IS NULL)
);

CREATE UNIQUE INDEX resources_uri_unique ON resources (org_id, uri) WHERE org_id IS NOT NULL;
CREATE UNIQUE INDEX resources_public_uri_unique ON resources (uri) WHERE org_id IS NULL;
