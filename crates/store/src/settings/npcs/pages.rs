//! Pages of NPCs.

use sqlx::PgConnection;
use switchboard_protocol::id::{DeviceId, NpcId, OrgId, TemplateId};
use uuid::Uuid;

use super::{Members, Npc, NpcFilter, Selector, read};
use crate::{
    Store, StoreError,
    database::{
        page::{MAX_PAGE_BYTES, Page, SizedId, page_ids},
        with_timeout,
    },
};

impl Store {
    /// NPCs of the organisation, in the order of their creation, strictly after `after`. At most
    /// `limit`, and at most 4 MiB unless it is a single one, including settings of their templates.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npcs(
        &self,
        org: OrgId,
        filter: &NpcFilter,
        after: Option<NpcId>,
        limit: u16,
    ) -> Result<Page<Npc>, StoreError> {
        self.npcs_with(org, filter, (after, limit), Members::All)
            .await
    }

    pub(super) async fn npcs_with(
        &self,
        org: OrgId,
        filter: &NpcFilter,
        (after, limit): (Option<NpcId>, u16),
        members: Members,
    ) -> Result<Page<Npc>, StoreError> {
        let after = after.map_or(Uuid::nil(), NpcId::uuid);
        with_timeout(async {
            let mut connection = self.tenant_conn(org).await?;
            let sizes = next_sizes(&mut connection, org, after, filter, limit).await?;
            let (ids, more) = page_ids(&sizes, limit);
            let elements = read(&mut connection, org, Selector::Ids(&ids), members).await?;
            Ok::<_, sqlx::Error>(Page { elements, more })
        })
        .await
    }
}

/// The ids and cumulated sizes of the next NPCs, up to one beyond the page. The recursion ends
/// there, so that no further row is decompressed. An NPC's overrides count twice: on their own, and
/// within its effective settings.
async fn next_sizes(
    connection: &mut PgConnection,
    org: OrgId,
    after: Uuid,
    filter: &NpcFilter,
    limit: u16,
) -> Result<Vec<SizedId>, sqlx::Error> {
    sqlx::query_as!(
        SizedId,
        r#"WITH RECURSIVE ahead AS (
               SELECT 0 AS number, $2::uuid AS id, 0::bigint AS bytes
               UNION ALL
               SELECT ahead.number + 1, next.id,
                      ahead.bytes + octet_length(concat(next.overrides, next.overrides, (
                          SELECT v.settings FROM template_versions v
                          WHERE v.template_id = next.template_id
                                AND v.version = COALESCE(next.template_version, v.version)
                          ORDER BY v.version DESC LIMIT 1)))
               FROM ahead CROSS JOIN LATERAL (
                   SELECT n.id, n.template_id, n.template_version, n.overrides FROM npcs n
                   WHERE n.org_id = $1 AND n.id > ahead.id
                         AND ($3::text IS NULL
                              OR n.id = (SELECT b.npc_id FROM npc_devices b WHERE b.org_id = $1 AND b.device_id = $3))
                         AND ($4::uuid IS NULL OR n.template_id = $4)
                   ORDER BY n.id LIMIT 1) next
               WHERE ahead.number <= $5 AND ahead.bytes <= $6)
           SELECT id AS "id!", bytes AS "bytes!" FROM ahead WHERE number > 0 ORDER BY number"#,
        org.uuid(),
        after,
        filter.device.as_ref().map(DeviceId::as_str),
        filter.template.map(TemplateId::uuid),
        i32::from(limit),
        MAX_PAGE_BYTES
    )
    .fetch_all(connection)
    .await
}
