-- Background jobs are claimed in turns of their owners: indexes that begin with the owner. The installation, whose
-- rows have no organisation, has the id 0.

CREATE INDEX skills_books_to_read_by_owner
    ON skills_books (coalesce(org_id, '00000000-0000-0000-0000-000000000000'), updated_at)
    WHERE state IN ('parsing', 'indexing');
DROP INDEX skills_books_to_read;

CREATE INDEX voices_due_by_owner
    ON voices (provider, coalesce(org_id, '00000000-0000-0000-0000-000000000000'), due_at) WHERE due_at IS NOT NULL;

-- Rows of a process of an earlier version count as the installation's.
ALTER TABLE embedding_queue ADD COLUMN owner_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000';
UPDATE embedding_queue queued SET owner_id = memory.org_id
FROM memories memory WHERE memory.id = queued.memory_id AND memory.org_id IS NOT NULL;
UPDATE embedding_queue queued SET owner_id = book.org_id
FROM skills_books book WHERE book.id = queued.book_id AND book.org_id IS NOT NULL;
CREATE INDEX embedding_queue_due_by_owner ON embedding_queue (owner_id, due_at, id);
DROP INDEX embedding_queue_due;

CREATE OR REPLACE FUNCTION wait_to_be_embedded() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    installation uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    IF NOT EXISTS (SELECT FROM embedding_models) THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_NAME = 'memories' THEN
        INSERT INTO embedding_queue (memory_id, owner_id) SELECT id, coalesce(org_id, installation) FROM added;
    ELSE
        INSERT INTO embedding_queue (book_id, chunk, owner_id)
        SELECT added.book_id, added.number, coalesce(book.org_id, installation)
        FROM added JOIN skills_books book ON book.id = added.book_id;
    END IF;
    RETURN NULL;
END
$$;
