//! The devices that NPCs are assigned to.
//! Invariant: a device is assigned to at most one NPC.

use sqlx::PgConnection;
use switchboard_protocol::id::{DeviceId, NpcId, OrgId};

use super::{Members, Npc, NpcWrite, Selector, read};
use crate::{Store, StoreError, database::with_timeout};

impl Store {
    /// The NPC that answers for a device: the one assigned to it, otherwise the organisation's
    /// default NPC. It has the settings that its answers need, like [`Store::npc_for_answers`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npc_for_device(
        &self,
        org: OrgId,
        device: &DeviceId,
    ) -> Result<Option<Npc>, StoreError> {
        with_timeout(async {
            let mut connection = self.tenant_conn(org).await?;
            let selector = Selector::ForDevice(device);
            let found = read(&mut connection, org, selector, Members::OfAnswers).await?;
            Ok::<_, sqlx::Error>(found.into_iter().next())
        })
        .await
    }
}

/// Assigns the devices to an NPC, and removes all others from it. Returns a device that belongs to
/// another NPC; the transaction must then not be committed.
pub(super) async fn bind(
    connection: &mut PgConnection,
    org: OrgId,
    npc: NpcId,
    devices: &[DeviceId],
) -> Result<Option<NpcWrite>, sqlx::Error> {
    let names: Vec<String> = devices.iter().map(|id| id.as_str().to_owned()).collect();
    // Unchanged rows are not touched, because the audit log records every change.
    sqlx::query!(
        "DELETE FROM npc_devices WHERE org_id = $1 AND npc_id = $2 AND device_id <> ALL ($3)",
        org.uuid(),
        npc.uuid(),
        &names
    )
    .execute(&mut *connection)
    .await?;
    // In one order, so that two writers that bind the same devices cannot deadlock.
    sqlx::query!(
        "INSERT INTO npc_devices (org_id, npc_id, device_id)
         SELECT $1, $2, name FROM UNNEST($3::text[]) AS name ORDER BY name
         ON CONFLICT DO NOTHING",
        org.uuid(),
        npc.uuid(),
        &names
    )
    .execute(&mut *connection)
    .await?;
    let bound = sqlx::query_scalar!(
        "SELECT device_id FROM npc_devices WHERE org_id = $1 AND npc_id = $2",
        org.uuid(),
        npc.uuid()
    )
    .fetch_all(&mut *connection)
    .await?;
    let Some(taken) = names.iter().position(|name| !bound.contains(name)) else {
        return Ok(None);
    };
    let owner = sqlx::query_scalar!(
        "SELECT npc_id FROM npc_devices WHERE org_id = $1 AND device_id = $2",
        org.uuid(),
        names.get(taken)
    )
    .fetch_optional(connection)
    .await?;
    Ok(Some(NpcWrite::DeviceTaken {
        index: taken,
        by: owner.map(NpcId::from_uuid),
    }))
}
