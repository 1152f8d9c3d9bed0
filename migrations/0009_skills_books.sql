-- Skills books: documents that characters look things up in, how far each has been read, and what was read.
-- Rows without an organisation belong to the installation: its operator writes them and every organisation reads them.

-- For words that are spelt slightly differently.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE skills_books (
    id             uuid        PRIMARY KEY,
    org_id         uuid        REFERENCES orgs (id),
    name           text        NOT NULL,
    mime_type      text        NOT NULL, -- how it is read
    size_bytes     bigint      NOT NULL, -- of the whole, as declared
    sha256         bytea       NOT NULL, -- of the whole, as declared
    state          text        NOT NULL DEFAULT 'uploading',
    revision       bigint      NOT NULL DEFAULT 0, -- one more with each part that is written
    chunks_total   integer, -- null until it has been parsed
    chunks_indexed integer     NOT NULL DEFAULT 0, -- chunks 0 to this are stored, without a hole
    chunks_sha256  bytea, -- of all chunks: whoever goes on makes sure that they are the same ones
    error_kind     text,
    error_detail   text,
    worker         uuid, -- who reads it
    leased_until   timestamptz, -- from then on somebody else may
    attempts       integer     NOT NULL DEFAULT 0, -- since a chunk was stored last
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT skills_books_name_length CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT skills_books_are_not_empty CHECK (size_bytes > 0),
    CONSTRAINT skills_books_sha256_is_sha256 CHECK (octet_length(sha256) = 32),
    CONSTRAINT skills_books_state_is_known
        CHECK (state IN ('uploading', 'parsing', 'indexing', 'ready', 'failed', 'cancelled')),
    CONSTRAINT skills_books_failed_for_a_reason CHECK ((state = 'failed') = (error_kind IS NOT NULL)),
    CONSTRAINT skills_books_chunks_are_counted CHECK (chunks_indexed BETWEEN 0 AND coalesce(chunks_total, 0))
);

CREATE INDEX skills_books_by_org ON skills_books (org_id, id);
CREATE INDEX skills_books_to_read ON skills_books (updated_at) WHERE state IN ('parsing', 'indexing');
CREATE INDEX skills_books_to_send ON skills_books (updated_at) WHERE state = 'uploading';

CREATE TABLE skills_book_parts (
    book_id    uuid    NOT NULL REFERENCES skills_books (id) ON DELETE CASCADE,
    number     integer NOT NULL,
    object     uuid    NOT NULL, -- a part that is written again is another object
    size_bytes bigint  NOT NULL,
    PRIMARY KEY (book_id, number),
    CONSTRAINT skills_book_parts_number_range CHECK (number BETWEEN 1 AND 10000),
    CONSTRAINT skills_book_parts_are_not_empty CHECK (size_bytes > 0)
);

CREATE TABLE skills_book_chunks (
    book_id uuid     NOT NULL REFERENCES skills_books (id) ON DELETE CASCADE,
    number  integer  NOT NULL, -- from 0
    heading text, -- the headings above it, outermost first
    page    integer,
    text    text     NOT NULL,
    terms   tsvector NOT NULL, -- its words, and the characters of languages without word breaks
    PRIMARY KEY (book_id, number)
);

CREATE INDEX skills_book_chunks_by_terms ON skills_book_chunks USING gin (terms);
CREATE INDEX skills_book_chunks_by_text ON skills_book_chunks USING gin (text gin_trgm_ops);

-- Every book that a template names, so that none goes while it is named.
CREATE TABLE template_skills_books (
    template_id uuid NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    book_id     uuid NOT NULL,
    PRIMARY KEY (template_id, book_id),
    CONSTRAINT template_skills_books_book_exists FOREIGN KEY (book_id) REFERENCES skills_books (id)
);

CREATE INDEX template_skills_books_by_book ON template_skills_books (book_id);

-- Every book that an NPC names and no newest version of its template holds for it.
CREATE TABLE npc_skills_books (
    npc_id  uuid NOT NULL REFERENCES npcs (id) ON DELETE CASCADE,
    book_id uuid NOT NULL,
    PRIMARY KEY (npc_id, book_id),
    CONSTRAINT npc_skills_books_book_exists FOREIGN KEY (book_id) REFERENCES skills_books (id)
);

CREATE INDEX npc_skills_books_by_book ON npc_skills_books (book_id);
