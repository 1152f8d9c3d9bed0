-- The language of an organisation's users, for messages of the service itself.
ALTER TABLE orgs
    ADD COLUMN locale text,
    ADD CONSTRAINT orgs_locale_is_short CHECK (octet_length(locale) BETWEEN 2 AND 35);
CREATE INDEX orgs_with_locale ON orgs (id) WHERE locale IS NOT NULL;
-- A statement that changes it names all settings, so that the audit log has its entry from the existing trigger.
CREATE TRIGGER orgs_count_locale_changes BEFORE UPDATE OF locale ON orgs
    FOR EACH ROW WHEN (OLD.locale IS DISTINCT FROM NEW.locale) EXECUTE FUNCTION count_change();
