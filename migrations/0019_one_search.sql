-- Skills books are searched as memories are: by the functions of 0008, in the book's own language. Likeness of words by
-- trigrams goes: in a real book of 20 MB it took up to four seconds a question, and a database of locale C has none of Chinese.

-- Chunks of all organisations are read below.
SELECT set_config('switchboard.speaker', 'everyone', true);

ALTER TABLE skills_books
    ADD COLUMN locale text NOT NULL DEFAULT 'en'; -- the language it is written in; those before were read as English

-- The extension stays: a process of the version before asks by it until it is replaced.
DROP INDEX skills_book_chunks_by_text;

-- The database's own locale may know the capitals of ASCII only.
DO $$
DECLARE
    unicode text := (SELECT 'COLLATE "und-x-icu"' FROM pg_collation
                     WHERE collname = 'und-x-icu' AND collnamespace = 'pg_catalog'::regnamespace);
BEGIN
    -- One entry for each chunk, not one for each of its terms.
    DROP INDEX skills_book_chunks_by_terms;
    EXECUTE format($update$
        UPDATE skills_book_chunks SET terms = search_terms(lower(concat_ws(E'\n', heading, text) %s), 'en')
    $update$, coalesce(unicode, ''));
    CREATE INDEX skills_book_chunks_by_terms ON skills_book_chunks USING gin (terms);
END
$$;
