-- What is found by its meaning: a model that an operator set makes numbers of texts, and texts that mean the same lie near
-- each other. The numbers are in the table `embeddings`, made when a model is set: not every server knows their type.

-- The model that was set last has the highest generation; without a row, nothing is embedded.
CREATE TABLE embedding_models (
    generation integer     PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    model      text        NOT NULL,
    dimensions integer     NOT NULL,
    filled     boolean     NOT NULL DEFAULT false, -- all that was there before is in the queue, or was
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT embedding_models_dimensions_range CHECK (dimensions BETWEEN 1 AND 4000)
);

-- Texts that wait for the model.
CREATE TABLE embedding_queue (
    id        bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    memory_id uuid        UNIQUE REFERENCES memories (id) ON DELETE CASCADE,
    book_id   uuid,
    chunk     integer,
    due_at    timestamptz NOT NULL DEFAULT now(), -- whoever takes a text moves this on; from then on another may
    failures  integer     NOT NULL DEFAULT 0, -- how often this text, and no other, was not embedded
    UNIQUE (book_id, chunk),
    FOREIGN KEY (book_id, chunk) REFERENCES skills_book_chunks (book_id, number) ON DELETE CASCADE,
    CONSTRAINT embedding_queue_has_one_text CHECK (num_nonnulls(memory_id, book_id) = 1 AND num_nonnulls(memory_id, chunk) = 1)
);

CREATE INDEX embedding_queue_due ON embedding_queue (due_at, id);

CREATE FUNCTION wait_to_be_embedded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM embedding_models) THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_NAME = 'memories' THEN
        INSERT INTO embedding_queue (memory_id) SELECT id FROM added;
    ELSE
        INSERT INTO embedding_queue (book_id, chunk) SELECT book_id, number FROM added;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER memories_wait_to_be_embedded AFTER INSERT ON memories
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION wait_to_be_embedded();
CREATE TRIGGER chunks_wait_to_be_embedded AFTER INSERT ON skills_book_chunks
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION wait_to_be_embedded();

-- How good it is to be found at these places, by words and by meaning; null where it was not found. 1 for the first of both.
CREATE FUNCTION fused_score(by_words bigint, by_meaning bigint) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (coalesce(1.0 / (60 + by_words), 0) + coalesce(1.0 / (60 + by_meaning), 0))::float8 * 30.5
$$;

-- All know which model there is; the installation sets it. Writers of texts put them into the queue, and the installation
-- takes them out.
CREATE POLICY read_by_somebody ON embedding_models FOR SELECT USING ((SELECT speaks_for_somebody()));
CREATE POLICY of_the_installation ON embedding_models USING ((SELECT speaks_for_everyone()));
CREATE POLICY entered_by_writers ON embedding_queue FOR INSERT
    WITH CHECK (EXISTS (SELECT FROM memories parent WHERE parent.id = memory_id
                        AND (parent.org_id = (SELECT speaks_for_org())
                             OR parent.org_id IS NULL AND (SELECT speaks_for_installation()))));
CREATE POLICY of_the_installation ON embedding_queue USING ((SELECT speaks_for_everyone()));
ALTER TABLE embedding_models ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE embedding_queue ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
