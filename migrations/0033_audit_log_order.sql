-- The begin of the oldest transaction that has written entries of the audit log and not committed them; null if there is none.
-- A reader that goes past it would not see those entries. The role of statements may not see when transactions of other
-- connections began, so the function has the rights of the role that migrates.
CREATE FUNCTION audit_log_pending_since() RETURNS timestamptz LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT min(a.xact_start) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.relation = 'audit_log'::regclass AND l.mode = 'RowExclusiveLock' AND l.granted AND a.datname = current_database()
$$;
