//! Rows of two organisations and of the installation, at least one in each table.
//! Invariant: the text of each row contains its owner's marker, and no other one.

/// In each row of the organisation in scope.
pub(crate) const OWN: &str = "aaaaaaaa-";
/// In each row of the other organisation.
pub(crate) const OTHER: &str = "bbbbbbbb-";
/// In each row of the installation.
pub(crate) const PUBLIC: &str = "cccccccc-";
/// The organisation in scope.
pub(crate) const OWN_ORG: &str = "aaaaaaaa-0000-0000-0000-000000000000";

/// Rows of an organisation or of the installation. `{mark}` is the owner's marker, `{org}` its
/// column.
const SHARED_KINDS: &str = "
    INSERT INTO templates (id, org_id, name, tags, persona, tools, skills_book_ids, memory, prompt_name)
        VALUES ('{mark}0000-0000-0000-000000000001', {org}, 't', '{}', '{}', '{}', '{}', '{}', '{mark}');
    INSERT INTO template_versions (template_id, version, settings)
        VALUES ('{mark}0000-0000-0000-000000000001', 1, '{}');
    INSERT INTO pictures (id, org_id, name, mime_type, width, height, size_bytes, sha256)
        VALUES ('{mark}0000-0000-0000-000000000002', {org}, 'p', 'image/png', 1, 1, 1, sha256('x'));
    INSERT INTO template_pictures VALUES ('{mark}0000-0000-0000-000000000001', '{mark}0000-0000-0000-000000000002');
    INSERT INTO skills_books (id, org_id, name, mime_type, size_bytes, sha256)
        VALUES ('{mark}0000-0000-0000-000000000003', {org}, 'b', 'text/plain', 1, sha256('x'));
    INSERT INTO skills_book_parts VALUES ('{mark}0000-0000-0000-000000000003', 1, '{mark}0000-0000-0000-000000000004', 1);
    INSERT INTO skills_book_chunks VALUES ('{mark}0000-0000-0000-000000000003', 0, NULL, NULL, 'word', to_tsvector('word'));
    INSERT INTO template_skills_books VALUES ('{mark}0000-0000-0000-000000000001', '{mark}0000-0000-0000-000000000003');
    INSERT INTO voices (id, org_id, name, languages, labels, consent_by, consent_statement, consent_agreed_at, mime_type,
                        duration_ms, sample_rate_hz, channels, size_bytes, sha256, provider)
        VALUES ('{mark}0000-0000-0000-00000000000a', {org}, 'v', '{}', '{}', 'a', 'b', now(), 'audio/wav', 1, 1, 1, 1,
                sha256('x'), 'embedded');
    INSERT INTO template_voices VALUES ('{mark}0000-0000-0000-000000000001', '{mark}0000-0000-0000-00000000000a');
    INSERT INTO memories (id, org_id, template_id, text, importance, metadata, mime_type)
        VALUES ('{mark}0000-0000-0000-000000000005', {org}, '{mark}0000-0000-0000-000000000001', 'm', 1, '{}', 'text/plain');
    INSERT INTO resources (org_id, uri, memory_id) VALUES ({org}, 'memory', '{mark}0000-0000-0000-000000000005');
    INSERT INTO resources (org_id, uri, picture_id) VALUES ({org}, 'picture', '{mark}0000-0000-0000-000000000002');
    INSERT INTO idempotent_requests (key_hash, org_id, fingerprint, status, location, media_type, body, sealed, expires_at)
        VALUES (sha256('{mark}'), {org}, sha256('x'), 201, '{mark}', 'text/plain', '', false, now());";

/// Rows of an organisation.
const ORG_ROWS: &str = "
    INSERT INTO orgs (id, name) VALUES ('{mark}0000-0000-0000-000000000000', 'o');
    INSERT INTO api_keys (id, org_id, name, prefix, secret_hash, scopes)
        VALUES ('{mark}0000-0000-0000-000000000006', {org}, 'k', 'k', sha256('{mark}'), '{admin}');
    INSERT INTO tokens (id, org_id, subject, scopes, issued_at, expires_at)
        VALUES ('{mark}0000-0000-0000-000000000007', {org}, 's', '{admin}', now(), now() + interval '1 day');
    INSERT INTO devices VALUES ({org}, 'd', 1, now(), now(), NULL);
    INSERT INTO forgotten_devices (org_id, device_id, epoch) VALUES ({org}, 'd', 1);
    INSERT INTO service_approvals (id, org_id, device_id, service, digest, definition, approved_by)
        VALUES ('{mark}0000-0000-0000-000000000014', {org}, 'd', 's', sha256('x'), '{}', 'a');
    INSERT INTO device_labels VALUES ({org}, 'd', '{a}', '');
    INSERT INTO registration_contents (org_id, digest, services) VALUES ({org}, sha256('x'), '{}');
    INSERT INTO service_registrations VALUES ({org}, 'd', sha256('x'), 1, now());
    INSERT INTO idempotent_calls (org_id, key_hash, fingerprint, call_id, deadline, expires_at)
        VALUES ({org}, sha256('x'), sha256('x'), '{mark}0000-0000-0000-000000000008', now(), now() + interval '1 day');
    INSERT INTO calls (call_id, org_id, device_id, mode, state, service, timeout_ms, deadline)
        VALUES ('{mark}0000-0000-0000-000000000008', {org}, 'd', 'async', 'sent', 's', 1, now());
    INSERT INTO usage_calls VALUES ({org}, date_trunc('hour', now()), '{mark}', 1, 1);
    INSERT INTO usage_turns VALUES ({org}, date_trunc('hour', now()), 1, 1, 1, 0.5);
    INSERT INTO usage_by VALUES ({org}, date_trunc('day', now(), 'UTC'), 'device', '{mark}', '', 1, 1, 1, 1, 1, 0.5);
    INSERT INTO recent_calls (org_id, id, call_id, ended_at, device_id, service, outcome, delivered, microseconds, via,
                              caller_kind, params_bytes, result_bytes)
        VALUES ({org}, '{mark}0000-0000-0000-000000000014', '{mark}0000-0000-0000-000000000008', now(), 'd', 's', 'o', 'yes', 1,
                'rest', 'assistant', 2, 2);
    INSERT INTO left_out_calls VALUES ({org}, date_trunc('hour', now()), 1);
    INSERT INTO recordings (id, org_id, device_id, duration_ms, size_bytes, sha256)
        VALUES ('{mark}0000-0000-0000-000000000013', {org}, 'd', 1, 1, sha256('x'));
    INSERT INTO call_queues VALUES ({org}, 'd', now());
    INSERT INTO webhooks (id, org_id, url, events, enabled, secret)
        VALUES ('{mark}0000-0000-0000-000000000010', {org}, 'u', '{call.finished}', true, sha256('{mark}'));
    INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, payload, next_attempt_at)
        VALUES ('{mark}0000-0000-0000-000000000011', {org}, '{mark}0000-0000-0000-000000000010', 'e',
                '{mark}0000-0000-0000-000000000012', '{}', now());";

/// Rows of an organisation that refer to its own templates, pictures and books.
const NPC_ROWS: &str = "
    INSERT INTO npcs (id, org_id, overrides) VALUES ('{mark}0000-0000-0000-000000000009', {org}, '{}');
    UPDATE orgs SET default_npc_id = '{mark}0000-0000-0000-000000000009' WHERE id = {org};
    INSERT INTO npc_devices VALUES ({org}, 'd', '{mark}0000-0000-0000-000000000009');
    INSERT INTO npc_pictures VALUES ('{mark}0000-0000-0000-000000000009', '{mark}0000-0000-0000-000000000002');
    INSERT INTO npc_voices VALUES ('{mark}0000-0000-0000-000000000009', '{mark}0000-0000-0000-00000000000a');
    INSERT INTO npc_skills_books VALUES ('{mark}0000-0000-0000-000000000009', '{mark}0000-0000-0000-000000000003');";

/// Keys of the installation, marked as another organisation's rows: no organisation can read them.
const KEY_ROWS: &str = "
    INSERT INTO signing_keys (kid, seed) VALUES ('bbbbbbbb-', sha256('x'));
    INSERT INTO usage_batches VALUES ('bbbbbbbb-0000-0000-0000-000000000020', 1);
    INSERT INTO voice_removals (provider, made_as) VALUES ('http', 'bbbbbbbb-');
    INSERT INTO sealing_keys (purpose, key) VALUES ('bbbbbbbb-', sha256('x'));";

/// Queued texts are visible to the installation's workers only.
const QUEUED: &str = "
    INSERT INTO embedding_queue (memory_id) VALUES ('bbbbbbbb-0000-0000-0000-000000000005');";

/// Embeddings, if the extension exists. Setting the model enqueues all texts.
const EMBEDDED: &str = "
    INSERT INTO embeddings (holder_id, memory_id, embedding)
        VALUES ('{mark}0000-0000-0000-000000000001', '{mark}0000-0000-0000-000000000005', '[1, 0]');
    INSERT INTO embeddings (holder_id, book_id, chunk, embedding)
        VALUES ('{mark}0000-0000-0000-000000000003', '{mark}0000-0000-0000-000000000003', 0, '[0, 1]');";

/// Statements that insert rows after a model was set.
pub(crate) fn with_embeddings() -> String {
    let marks = [OWN, OTHER, PUBLIC].map(|mark| EMBEDDED.replace("{mark}", mark));
    format!("DELETE FROM embedding_queue; {QUEUED} {}", marks.concat())
}

/// Statements that insert all rows.
pub(crate) fn all() -> String {
    let mut all = KEY_ROWS.to_owned();
    for mark in [OWN, OTHER, PUBLIC] {
        let org = format!("'{mark}0000-0000-0000-000000000000'");
        let (org, parts) = match mark {
            PUBLIC => ("NULL", [SHARED_KINDS].as_slice()),
            _ => (org.as_str(), [ORG_ROWS, SHARED_KINDS, NPC_ROWS].as_slice()),
        };
        for part in parts {
            all.push_str(&part.replace("{mark}", mark).replace("{org}", org));
        }
    }
    all.push_str(QUEUED);
    all
}
