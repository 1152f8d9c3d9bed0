-- Each picture's bytes are an object of their own, put before there is a row and removed after the row is gone, so that no
-- transaction waits for the object store. Pictures of before go on sharing one by their hash, which nobody writes any more.

ALTER TABLE pictures
    ADD COLUMN own_object boolean NOT NULL DEFAULT false, -- false as well for what an older version still writes
    ADD COLUMN object text NOT NULL -- the last part of the object's key
        GENERATED ALWAYS AS (CASE WHEN own_object THEN replace(id::text, '-', '') ELSE encode(sha256, 'hex') END) STORED;

CREATE INDEX pictures_by_object ON pictures (object);

DROP INDEX pictures_by_content;
