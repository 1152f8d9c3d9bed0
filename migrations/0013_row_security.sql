-- Organisations are kept apart by the database as well. Each statement says for whom it speaks, and runs under a role that
-- owns nothing: what it says nothing of, it does not see, even if it forgets to ask for an organisation.

-- Roles are the server's, not the database's: others may be making them at this moment. All statements run under
-- switchboard_service but one, which see below.
DO $$
DECLARE
    wanted text;
    -- Since version 16 to be a member is not enough.
    membership text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['switchboard_service', 'switchboard_search']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = wanted AND (rolsuper OR rolbypassrls)) THEN
            RAISE EXCEPTION 'the role % is above row security; run ALTER ROLE % NOSUPERUSER NOBYPASSRLS', wanted, wanted;
        END IF;
        IF NOT pg_has_role(current_user, wanted, membership) THEN
            EXECUTE format('GRANT %I TO CURRENT_USER', wanted);
        END IF;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'the user % may not make the roles that statements run under; run, as one who may: CREATE ROLE switchboard_service; CREATE ROLE switchboard_search; GRANT switchboard_service, switchboard_search TO %',
        quote_ident(current_user), quote_ident(current_user);
END
$$;

-- It reads and writes rows, of tables to come as well, and nothing else.
DO $$
BEGIN
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO switchboard_service', current_schema());
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO switchboard_service',
                   current_schema());
    IF NOT has_schema_privilege('switchboard_service', current_schema(), 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO switchboard_service, switchboard_search', current_schema());
    END IF;
    IF to_regclass('_sqlx_migrations') IS NOT NULL THEN
        REVOKE ALL ON _sqlx_migrations FROM switchboard_service;
    END IF;
END
$$;

-- For whom this statement speaks: an organisation's id, 'installation', 'everyone', or nothing for nobody. In policies these
-- stand as (SELECT …), so that they are asked once for a statement and not for each row.
CREATE FUNCTION speaker() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT NULLIF(current_setting('switchboard.speaker', true), '')
$$;

CREATE FUNCTION speaks_for_org() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT NULLIF(NULLIF(speaker(), 'everyone'), 'installation')::uuid
$$;

CREATE FUNCTION speaks_for_installation() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT COALESCE(speaker() = 'installation', false)
$$;

CREATE FUNCTION speaks_for_everyone() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT COALESCE(speaker() = 'everyone', false)
$$;

CREATE FUNCTION speaks_for_somebody() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT speaker() IS NOT NULL
$$;

-- Rows that belong to one organisation each.
DO $$
DECLARE
    secured text;
    own text := '%I = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone())';
BEGIN
    FOREACH secured IN ARRAY ARRAY['api_keys', 'tokens', 'devices', 'registration_contents', 'service_registrations',
                                   'idempotent_calls', 'npcs', 'npc_devices', 'calls', 'call_queues']
    LOOP
        EXECUTE format('CREATE POLICY of_one_org ON %I USING (' || own || ')', secured, 'org_id');
    END LOOP;
    EXECUTE format('CREATE POLICY of_one_org ON orgs USING (' || own || ')', 'id');
END
$$;

-- Rows of an organisation or of the installation; what the installation has is public, its answers to the operator apart.
DO $$
DECLARE
    secured text;
    own text := 'org_id = (SELECT speaks_for_org()) OR (SELECT speaks_for_everyone())';
    writable text := own || ' OR (org_id IS NULL AND (SELECT speaks_for_installation()))';
    readable text := own || ' OR (org_id IS NULL AND (SELECT speaks_for_somebody()))';
BEGIN
    FOREACH secured IN ARRAY ARRAY['templates', 'pictures', 'skills_books', 'memories', 'resources']
    LOOP
        EXECUTE format('CREATE POLICY read_with_public_ones ON %I FOR SELECT USING (' || readable || ')', secured);
        EXECUTE format('CREATE POLICY made_by_their_owner ON %I FOR INSERT WITH CHECK (' || writable || ')', secured);
        EXECUTE format('CREATE POLICY removed_by_their_owner ON %I FOR DELETE USING (' || writable || ')', secured);
    END LOOP;
    FOREACH secured IN ARRAY ARRAY['memories', 'resources']
    LOOP
        EXECUTE format('CREATE POLICY changed_by_their_owner ON %I FOR UPDATE USING (' || writable || ')', secured);
    END LOOP;
    -- Whoever names a public one holds on to it (FOR SHARE), and for PostgreSQL that is to update it. What is written
    -- must be the writer's own all the same, and rows keep their owner.
    FOREACH secured IN ARRAY ARRAY['templates', 'pictures', 'skills_books']
    LOOP
        EXECUTE format('CREATE POLICY changed_by_their_owner ON %I FOR UPDATE USING (' || readable || ') WITH CHECK ('
                           || writable || ')', secured);
    END LOOP;
    EXECUTE 'CREATE POLICY of_their_owner ON idempotent_requests USING (' || writable || ')';
END
$$;

CREATE FUNCTION keep_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % keeps its owner', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER templates_keep_their_owner BEFORE UPDATE OF org_id ON templates
    FOR EACH ROW WHEN (OLD.org_id IS DISTINCT FROM NEW.org_id) EXECUTE FUNCTION keep_owner();
CREATE TRIGGER pictures_keep_their_owner BEFORE UPDATE OF org_id ON pictures
    FOR EACH ROW WHEN (OLD.org_id IS DISTINCT FROM NEW.org_id) EXECUTE FUNCTION keep_owner();
CREATE TRIGGER skills_books_keep_their_owner BEFORE UPDATE OF org_id ON skills_books
    FOR EACH ROW WHEN (OLD.org_id IS DISTINCT FROM NEW.org_id) EXECUTE FUNCTION keep_owner();

-- Rows that belong to another row: who sees that one sees them, and who owns it writes them.
DO $$
DECLARE
    secured text[];
    seen text := '(SELECT speaks_for_everyone()) OR EXISTS (SELECT FROM %I parent WHERE parent.id = %I)';
    written text := '(SELECT speaks_for_everyone()) OR EXISTS (SELECT FROM %I parent WHERE parent.id = %I
                     AND (parent.org_id = (SELECT speaks_for_org())
                          OR parent.org_id IS NULL AND (SELECT speaks_for_installation())))';
BEGIN
    FOREACH secured SLICE 1 IN ARRAY ARRAY[
        ['template_versions', 'templates', 'template_id'], ['template_pictures', 'templates', 'template_id'],
        ['template_skills_books', 'templates', 'template_id'], ['npc_pictures', 'npcs', 'npc_id'],
        ['npc_skills_books', 'npcs', 'npc_id'], ['skills_book_parts', 'skills_books', 'book_id'],
        ['skills_book_chunks', 'skills_books', 'book_id']]
    LOOP
        EXECUTE format('CREATE POLICY read_with_their_parent ON %I FOR SELECT USING (' || seen || ')', VARIADIC secured);
        EXECUTE format('CREATE POLICY made_by_their_owner ON %I FOR INSERT WITH CHECK (' || written || ')', VARIADIC secured);
        EXECUTE format('CREATE POLICY changed_by_their_owner ON %I FOR UPDATE USING (' || written || ')', VARIADIC secured);
        EXECUTE format('CREATE POLICY removed_by_their_owner ON %I FOR DELETE USING (' || written || ')', VARIADIC secured);
    END LOOP;
END
$$;

-- PostgreSQL uses no index on words where a policy has to look at the row first, and a book has thousands of chunks. So
-- searching runs under a role of its own, which finds its book among those that the speaker sees, and reads chunks of
-- that book. It may do nothing else.
GRANT SELECT ON skills_books, skills_book_chunks TO switchboard_search;
CREATE POLICY searched ON skills_book_chunks FOR SELECT TO switchboard_search USING (true);

-- Keys of the installation, which no organisation's statement has any business with.
CREATE POLICY of_the_installation ON signing_keys USING ((SELECT speaks_for_everyone()));
CREATE POLICY of_the_installation ON sealing_keys USING ((SELECT speaks_for_everyone()));

-- For all of them, and for their owner too.
DO $$
DECLARE
    secured name;
BEGIN
    FOR secured IN SELECT DISTINCT tablename FROM pg_policies WHERE schemaname = current_schema()
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', secured);
    END LOOP;
END
$$;
