//! The devices that NPCs speak through.
//! Never: a device that speaks for two.

use sqlx::PgConnection;
use switchboard_protocol::id::{DeviceId, NpcId, OrgId};

use super::{Npc, NpcWrite, Wanted, read};
use crate::{Store, StoreError, database::bounded};

impl Store {
    /// Who answers for a device: the NPC that speaks through it, else the one that its organisation has for all devices
    /// through which none speaks.
    ///
    /// # Errors
    /// As every query.
    pub async fn npc_of_device(
        &self,
        org: OrgId,
        device: &DeviceId,
    ) -> Result<Option<Npc>, StoreError> {
        bounded(async {
            let mut connection = self.within(org).await?;
            let found = read(&mut connection, org, Wanted::Answering(device)).await?;
            Ok::<_, sqlx::Error>(found.into_iter().next())
        })
        .await
    }
}

/// Gives an NPC these devices and takes all others from it. Says which of them another NPC has; then the transaction
/// must not be committed.
pub(super) async fn bind(
    connection: &mut PgConnection,
    org: OrgId,
    npc: NpcId,
    devices: &[DeviceId],
) -> Result<Option<NpcWrite>, sqlx::Error> {
    let names: Vec<String> = devices.iter().map(|id| id.as_str().to_owned()).collect();
    // What stays is not touched: the audit log says whether anything has changed.
    sqlx::query!(
        "DELETE FROM npc_devices WHERE org_id = $1 AND npc_id = $2 AND device_id <> ALL ($3)",
        org.uuid(),
        npc.uuid(),
        &names
    )
    .execute(&mut *connection)
    .await?;
    // In one order, so that two who bind the same devices wait for each other instead of both.
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
    let holder = sqlx::query_scalar!(
        "SELECT npc_id FROM npc_devices WHERE org_id = $1 AND device_id = $2",
        org.uuid(),
        names.get(taken)
    )
    .fetch_optional(connection)
    .await?;
    Ok(Some(NpcWrite::DeviceTaken {
        index: taken,
        by: holder.map(NpcId::from_uuid),
    }))
}
