//! References of templates and NPCs to voices. A provider's own voices have no rows here.

use sqlx::PgConnection;
use switchboard_protocol::id::{NpcId, TemplateId, VoiceId};

use crate::Owner;

/// The voice if the owner cannot read it. Otherwise it is locked against deletion until the
/// transaction ends.
pub(crate) async fn lock_voice(
    connection: &mut PgConnection,
    owner: Owner,
    voice: Option<VoiceId>,
) -> Result<Option<VoiceId>, sqlx::Error> {
    let Some(id) = voice else {
        return Ok(None);
    };
    let found = sqlx::query_scalar!(
        "SELECT id FROM voices WHERE id = $1 AND (org_id = $2 OR org_id IS NULL) FOR KEY SHARE",
        id.uuid(),
        owner.column()
    )
    .fetch_optional(connection)
    .await?;
    Ok(found.is_none().then_some(id))
}

/// Replaces a template's reference to a voice.
pub(crate) async fn link_template_voice(
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

/// Replaces an NPC's reference to a voice.
pub(crate) async fn link_npc_voice(
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
