//! Who speaks with which voice: templates and NPCs hold on to theirs. A provider's own voices are held by nobody here.
//! Never: a voice that its owner cannot read.

use sqlx::PgConnection;
use switchboard_protocol::id::{NpcId, TemplateId, VoiceId};

use crate::owner::Owner;

/// The voice, when the owner cannot read it. Otherwise it stays until the transaction ends.
pub(crate) async fn unknown_voice(
    connection: &mut PgConnection,
    owner: Owner,
    named: Option<VoiceId>,
) -> Result<Option<VoiceId>, sqlx::Error> {
    let Some(id) = named else {
        return Ok(None);
    };
    let known = sqlx::query_scalar!(
        "SELECT id FROM voices WHERE id = $1 AND (org_id = $2 OR org_id IS NULL) FOR KEY SHARE",
        id.uuid(),
        owner.column()
    )
    .fetch_optional(connection)
    .await?;
    Ok(known.is_none().then_some(id))
}

/// Holds on to the voice that a template speaks with, and to no other.
pub(crate) async fn hold_for_template(
    connection: &mut PgConnection,
    template: TemplateId,
    voice: Option<VoiceId>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM template_voices WHERE template_id = $1 AND voice_id IS DISTINCT FROM $2",
        template.uuid(),
        voice.map(VoiceId::uuid)
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "INSERT INTO template_voices (template_id, voice_id)
         SELECT $1::uuid, named FROM unnest($2::uuid[]) named ON CONFLICT DO NOTHING",
        template.uuid(),
        &voice.map(VoiceId::uuid).into_iter().collect::<Vec<_>>()
    )
    .execute(connection)
    .await
    .map(drop)
}

/// As [`hold_for_template`], for an NPC.
pub(crate) async fn hold_for_npc(
    connection: &mut PgConnection,
    npc: NpcId,
    voice: Option<VoiceId>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM npc_voices WHERE npc_id = $1 AND voice_id IS DISTINCT FROM $2",
        npc.uuid(),
        voice.map(VoiceId::uuid)
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "INSERT INTO npc_voices (npc_id, voice_id)
         SELECT $1::uuid, named FROM unnest($2::uuid[]) named ON CONFLICT DO NOTHING",
        npc.uuid(),
        &voice.map(VoiceId::uuid).into_iter().collect::<Vec<_>>()
    )
    .execute(connection)
    .await
    .map(drop)
}
