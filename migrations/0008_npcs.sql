-- NPCs: characters of an organisation, made from a template or on their own, the devices they speak through, and what
-- they remember. And the versions of templates, because an NPC may stay with one.

CREATE TABLE template_versions (
    template_id uuid        NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    version     bigint      NOT NULL,
    settings    jsonb       NOT NULL, -- all that its author set, as the API shows it
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (template_id, version)
);

INSERT INTO template_versions (template_id, version, settings, created_at)
SELECT id, version,
       jsonb_build_object(
           'name', name, 'avatar', 'pic_' || replace(avatar::text, '-', ''), 'locale', locale, 'tags', to_jsonb(tags),
           'persona', persona, 'model', model, 'voice', voice, 'tools', tools,
           'skills_book_ids', to_jsonb(ARRAY(SELECT 'skb_' || replace(book::text, '-', '') FROM unnest(skills_book_ids) book)),
           'memory', memory, 'prompt', prompt),
       updated_at
FROM templates;

CREATE TABLE npcs (
    id               uuid        PRIMARY KEY,
    org_id           uuid        NOT NULL REFERENCES orgs (id),
    template_id      uuid,
    template_version bigint, -- null: it follows the template's newest
    overrides        jsonb       NOT NULL, -- a merge patch of the template's settings, without nulls
    version          bigint      NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    UNIQUE (org_id, id),
    CONSTRAINT npcs_template_exists FOREIGN KEY (template_id) REFERENCES templates (id),
    CONSTRAINT npcs_template_version_exists FOREIGN KEY (template_id, template_version)
        REFERENCES template_versions (template_id, version),
    CONSTRAINT npcs_pin_needs_a_template CHECK (template_version IS NULL OR template_id IS NOT NULL)
);

CREATE INDEX npcs_by_template ON npcs (template_id, template_version);

-- A device speaks for one NPC at most. It need not have connected yet.
CREATE TABLE npc_devices (
    org_id    uuid             NOT NULL,
    device_id text COLLATE "C" NOT NULL,
    npc_id    uuid             NOT NULL,
    PRIMARY KEY (org_id, device_id),
    FOREIGN KEY (org_id, npc_id) REFERENCES npcs (org_id, id) ON DELETE CASCADE
);

CREATE INDEX npc_devices_by_npc ON npc_devices (npc_id, device_id);

-- The pictures that an NPC shows and no newest version of its template holds for it.
CREATE TABLE npc_pictures (
    npc_id     uuid NOT NULL REFERENCES npcs (id) ON DELETE CASCADE,
    picture_id uuid NOT NULL,
    PRIMARY KEY (npc_id, picture_id),
    CONSTRAINT npc_pictures_picture_exists FOREIGN KEY (picture_id) REFERENCES pictures (id)
);

CREATE INDEX npc_pictures_by_picture ON npc_pictures (picture_id);

ALTER TABLE memories
    ADD COLUMN npc_id uuid,
    ADD FOREIGN KEY (org_id, npc_id) REFERENCES npcs (org_id, id) ON DELETE CASCADE,
    DROP CONSTRAINT memories_have_one_owner,
    ADD CONSTRAINT memories_have_one_owner CHECK (num_nonnulls(template_id, npc_id) = 1),
    ADD CONSTRAINT memories_of_npcs_have_an_org CHECK (npc_id IS NULL OR org_id IS NOT NULL);

CREATE INDEX memories_by_npc ON memories (npc_id, id) WHERE npc_id IS NOT NULL;

-- Texts of all languages are stored and searched.
DO $$
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'this database has the encoding %, and must have UTF8', current_setting('server_encoding')
            USING HINT = 'Create a database with ENCODING UTF8 TEMPLATE template0, and restore a dump of this one into it.';
    END IF;
END
$$;

-- How memories are searched. Scripts that put no spaces between words are cut into their characters and pairs of
-- neighbours: that finds words of any length by the index, whatever the database's locale knows of letters. All other
-- words are taken as they are and, where the language is known, by their stems. Texts come in lower case.

-- Thai, Lao, Tibetan, Myanmar, Khmer, Kana, Han and Hangul.
CREATE FUNCTION search_dense() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff'
        || '\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff'
$$;

-- One spelling of what looks the same: composed letters, and letters and digits of full width as those of ASCII.
CREATE FUNCTION search_spelling(lowered text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT translate(normalize(lowered, NFC), '０１２３４５６７８９ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ',
                     '0123456789abcdefghijklmnopqrstuvwxyz')
$$;

-- What is left are words and single spaces: PostgreSQL's own parser takes minutes for some texts with punctuation.
CREATE FUNCTION search_words(lowered text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT regexp_replace(lowered, '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b4\u00b6-\u00b9'
        || '\u00bb-\u00bf\u00d7\u00f7\u060c\u061b\u061f\u06d4\u0964\u0965\u2000-\u2bff\u2e00-\u2e7f\u3000-\u3004'
        || '\u3008-\u303f\ufe10-\ufe6f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\U0001f000-\U0001faff'
        || search_dense() || ']+', ' ', 'g')
$$;

-- In what is asked for, a character that has a neighbour counts in its pairs alone.
CREATE FUNCTION search_grams(lowered text, asked boolean) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN lowered ~ ('[' || search_dense() || ']') THEN (
        WITH written AS (
            SELECT letter, place, letter ~ ('[' || search_dense() || ']') AS dense
            FROM unnest(string_to_array(lowered, NULL)) WITH ORDINALITY AS letters (letter, place)),
        neighbours AS (
            SELECT letter, dense, lead(letter) OVER places AS next, lead(dense, 1, false) OVER places AS pairs,
                   lag(dense, 1, false) OVER places AS paired
            FROM written WINDOW places AS (ORDER BY place))
        SELECT array_agg(DISTINCT gram)
        FROM neighbours, LATERAL (VALUES (CASE WHEN pairs THEN letter || next END),
                                         (CASE WHEN NOT (asked AND (pairs OR paired)) THEN letter END)) AS grams (gram)
        WHERE dense AND gram IS NOT NULL)
    ELSE '{}' END
$$;

-- Null when the language is not known; empty when there are only words that say nothing in it.
CREATE FUNCTION search_stems(words text, language text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE language
        WHEN 'da' THEN to_tsvector('pg_catalog.danish', words)
        WHEN 'de' THEN to_tsvector('pg_catalog.german', words)
        WHEN 'en' THEN to_tsvector('pg_catalog.english', words)
        WHEN 'es' THEN to_tsvector('pg_catalog.spanish', words)
        WHEN 'fi' THEN to_tsvector('pg_catalog.finnish', words)
        WHEN 'fr' THEN to_tsvector('pg_catalog.french', words)
        WHEN 'hu' THEN to_tsvector('pg_catalog.hungarian', words)
        WHEN 'it' THEN to_tsvector('pg_catalog.italian', words)
        WHEN 'nb' THEN to_tsvector('pg_catalog.norwegian', words)
        WHEN 'nl' THEN to_tsvector('pg_catalog.dutch', words)
        WHEN 'nn' THEN to_tsvector('pg_catalog.norwegian', words)
        WHEN 'no' THEN to_tsvector('pg_catalog.norwegian', words)
        WHEN 'pt' THEN to_tsvector('pg_catalog.portuguese', words)
        WHEN 'ro' THEN to_tsvector('pg_catalog.romanian', words)
        WHEN 'ru' THEN to_tsvector('pg_catalog.russian', words)
        WHEN 'sv' THEN to_tsvector('pg_catalog.swedish', words)
        WHEN 'tr' THEN to_tsvector('pg_catalog.turkish', words)
    END
$$;

-- By what a text is found.
CREATE FUNCTION search_terms(lowered text, language text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_to_tsvector(search_grams(spelt, false)) || to_tsvector('pg_catalog.simple', words)
        || COALESCE(search_stems(words, language), '')
    FROM search_spelling(lowered) AS spelt, search_words(spelt) AS words
$$;

-- Any of what is asked for; words that say nothing count only when there are no others. Null when nothing is asked for.
CREATE FUNCTION search_query(lowered text, language text) RETURNS tsquery LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH words AS (
        SELECT word, search_stems(word, language) AS stems
        FROM unnest(tsvector_to_array(to_tsvector('pg_catalog.simple', search_words(search_spelling(lowered))))) AS word),
    terms AS (
        SELECT gram AS term, false AS says_nothing FROM unnest(search_grams(search_spelling(lowered), true)) AS gram
        UNION SELECT word, COALESCE(stems = '', false) FROM words
        UNION SELECT stem, false FROM words, unnest(tsvector_to_array(stems)) AS stem),
    quoted AS (
        SELECT '''' || replace(replace(term, '\', '\\'), '''', '''''') || '''' AS term, says_nothing FROM terms)
    SELECT COALESCE(string_agg(term, ' | ') FILTER (WHERE NOT says_nothing), string_agg(term, ' | '))::tsquery
    FROM quoted
$$;

ALTER TABLE memories ADD COLUMN terms tsvector;
UPDATE memories m
SET terms = search_terms(lower(m.text), lower(split_part(t.locale, '-', 1)))
FROM templates t WHERE t.id = m.template_id;
CREATE INDEX memories_by_terms ON memories USING gin (terms);

-- A process of the version before knows no terms, and writes until it is replaced.
CREATE FUNCTION memories_get_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.terms := search_terms(lower(NEW.text), NULL);
    RETURN NEW;
END
$$;

CREATE TRIGGER memories_without_terms BEFORE INSERT ON memories
    FOR EACH ROW WHEN (NEW.terms IS NULL) EXECUTE FUNCTION memories_get_terms();
