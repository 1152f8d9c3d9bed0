-- Voices: how somebody sounds, with that person's consent, and how far the provider is that makes a voice of the sample.
-- Rows without an organisation belong to the installation: its operator writes them and every organisation reads them.

CREATE TABLE voices (
    id                 uuid        PRIMARY KEY,
    org_id             uuid        REFERENCES orgs (id),
    name               text        NOT NULL,
    languages          text[]      NOT NULL,
    labels             text[]      NOT NULL,
    consent_by         text        NOT NULL, -- whose voice it is
    consent_statement  text        NOT NULL, -- what they agreed to
    consent_agreed_at  timestamptz NOT NULL,
    consent_expires_at timestamptz, -- from then on it is not used
    mime_type          text        NOT NULL, -- of the sample: what its bytes are, whatever the sender called them
    duration_ms        integer     NOT NULL,
    sample_rate_hz     integer     NOT NULL,
    channels           integer     NOT NULL,
    size_bytes         bigint      NOT NULL,
    sha256             bytea       NOT NULL,
    provider           text        NOT NULL, -- who makes it
    making             integer     NOT NULL DEFAULT 1, -- one more each time it is made again
    made_as            text, -- what its provider calls it
    state              text        NOT NULL DEFAULT 'uploaded',
    error_kind         text,
    error_detail       text,
    worker             uuid, -- who asks its provider
    due_at             timestamptz DEFAULT now(), -- from then on somebody may; null: there is nothing to ask
    attempts           integer     NOT NULL DEFAULT 0, -- since its provider said something last
    failures           integer     NOT NULL DEFAULT 0, -- how often since then it did not answer as agreed
    version            bigint      NOT NULL DEFAULT 1, -- of what its author may change
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT voices_name_length CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT voices_have_consent CHECK (consent_by <> '' AND consent_statement <> ''),
    CONSTRAINT voices_samples_are_not_empty CHECK (size_bytes > 0 AND duration_ms > 0),
    CONSTRAINT voices_sha256_is_sha256 CHECK (octet_length(sha256) = 32),
    CONSTRAINT voices_state_is_known CHECK (state IN ('uploaded', 'training', 'ready', 'failed', 'expired')),
    CONSTRAINT voices_end_for_a_reason CHECK ((state IN ('failed', 'expired')) = (error_kind IS NOT NULL))
);

CREATE INDEX voices_by_org ON voices (org_id, id);
CREATE INDEX voices_due ON voices (due_at) WHERE due_at IS NOT NULL;

-- What providers still have of voices that are gone, made again or no longer allowed.
CREATE TABLE voice_removals (
    provider text        NOT NULL,
    made_as  text        NOT NULL, -- what the provider calls it, or, when that never arrived, the key it was to be made under
    is_key   boolean     NOT NULL DEFAULT false,
    due_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, made_as, is_key)
);

CREATE INDEX voice_removals_due ON voice_removals (due_at);

-- The voice that a template speaks with, so that it does not go meanwhile.
CREATE TABLE template_voices (
    template_id uuid PRIMARY KEY REFERENCES templates (id) ON DELETE CASCADE,
    voice_id    uuid NOT NULL,
    CONSTRAINT template_voices_voice_exists FOREIGN KEY (voice_id) REFERENCES voices (id)
);

CREATE INDEX template_voices_by_voice ON template_voices (voice_id);

-- The voice that an NPC speaks with and no newest version of its template holds for it.
CREATE TABLE npc_voices (
    npc_id   uuid PRIMARY KEY REFERENCES npcs (id) ON DELETE CASCADE,
    voice_id uuid NOT NULL,
    CONSTRAINT npc_voices_voice_exists FOREIGN KEY (voice_id) REFERENCES voices (id)
);

CREATE INDEX npc_voices_by_voice ON npc_voices (voice_id);

-- As 0013 has it for pictures: an organisation's or the installation's, whose are public. Whoever names a public one holds
-- on to it, and rows keep their owner.
DO $$
DECLARE
    own text := 'org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone())';
    writable text := own || ' OR (org_id IS NULL AND (SELECT speaks_for_installation()))';
    readable text := own || ' OR (org_id IS NULL AND (SELECT speaks_for_somebody()))';
    secured text[];
    seen text := '(SELECT speaks_for_everyone()) OR EXISTS (SELECT FROM %I parent WHERE parent.id = %I)';
    written text := '(SELECT speaks_for_everyone()) OR EXISTS (SELECT FROM %I parent WHERE parent.id = %I
                     AND (parent.org_id = (SELECT speaks_for_org())
                          OR parent.org_id IS NULL AND (SELECT speaks_for_installation())))';
BEGIN
    EXECUTE 'CREATE POLICY read_with_public_ones ON voices FOR SELECT USING (' || readable || ')';
    EXECUTE 'CREATE POLICY made_by_their_owner ON voices FOR INSERT WITH CHECK (' || writable || ')';
    EXECUTE 'CREATE POLICY removed_by_their_owner ON voices FOR DELETE USING (' || writable || ')';
    EXECUTE 'CREATE POLICY changed_by_their_owner ON voices FOR UPDATE USING (' || readable || ') WITH CHECK (' || writable || ')';
    FOREACH secured SLICE 1 IN ARRAY ARRAY[['template_voices', 'templates', 'template_id'], ['npc_voices', 'npcs', 'npc_id']]
    LOOP
        EXECUTE format('CREATE POLICY read_with_their_parent ON %I FOR SELECT USING (' || seen || ')', VARIADIC secured);
        EXECUTE format('CREATE POLICY made_by_their_owner ON %I FOR INSERT WITH CHECK (' || written || ')', VARIADIC secured);
        EXECUTE format('CREATE POLICY changed_by_their_owner ON %I FOR UPDATE USING (' || written || ')', VARIADIC secured);
        EXECUTE format('CREATE POLICY removed_by_their_owner ON %I FOR DELETE USING (' || written || ')', VARIADIC secured);
    END LOOP;
END
$$;

CREATE TRIGGER voices_keep_their_owner BEFORE UPDATE OF org_id ON voices
    FOR EACH ROW WHEN (OLD.org_id IS DISTINCT FROM NEW.org_id) EXECUTE FUNCTION keep_owner();

-- What is left at providers is no organisation's any more.
CREATE POLICY of_the_installation ON voice_removals USING ((SELECT speaks_for_everyone()));

ALTER TABLE voices ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE template_voices ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE npc_voices ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE voice_removals ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- What providers make of it is nobody's doing.
CREATE TRIGGER audited AFTER INSERT OR DELETE OR UPDATE OF name, languages, labels, making ON voices
    FOR EACH ROW WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION audit('voice', '', 'name', 'languages', 'labels', 'making');
