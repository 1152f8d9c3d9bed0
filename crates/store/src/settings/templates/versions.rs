//! Versions of templates, for NPCs that are pinned to one.
//! Invariant: the number of versions is bounded, and a version with a pinned NPC is not
//! deleted.

use sqlx::{PgConnection, types::Json};
use switchboard_catalog::TemplateSettings;
use switchboard_protocol::id::TemplateId;

use super::Template;
use crate::{
    Owner, Store, StoreError,
    database::{
        connections::{set_local_system, set_local_tenant},
        with_timeout,
    },
};

/// How many versions of a template are retained, in addition to those with a pinned NPC.
const MAX_VERSIONS: i64 = 100;

impl Store {
    /// The settings of a template in this version, if the reader can read the template.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn template_version(
        &self,
        reader: Owner,
        id: TemplateId,
        version: i64,
    ) -> Result<Option<TemplateSettings>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"SELECT v.settings AS "settings: Json<TemplateSettings>"
               FROM template_versions v JOIN templates t ON t.id = v.template_id
               WHERE v.template_id = $1 AND v.version = $2 AND (t.org_id = $3 OR t.org_id IS NULL)"#,
            id.uuid(),
            version,
            reader.column()
        );
        let found = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(reader).await?)
                .await
        })
        .await?;
        Ok(found.map(|settings| settings.0))
    }
}

/// Inserts the current version and deletes old ones. The caller has written the template's row; its
/// lock excludes writers that pin an NPC to a version.
pub(super) async fn insert(
    connection: &mut PgConnection,
    template: &Template,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO template_versions (template_id, version, settings) VALUES ($1, $2, $3)",
        template.id.uuid(),
        template.version,
        Json(&template.settings) as _
    )
    .execute(&mut *connection)
    .await?;
    // NPCs of all organisations can be pinned to a version of a public template.
    if template.owner.is_public() {
        set_local_system(connection).await?;
    }
    sqlx::query!(
        "DELETE FROM template_versions v
         WHERE v.template_id = $1 AND v.version <= $2
               AND NOT EXISTS (SELECT FROM npcs n WHERE n.template_id = v.template_id AND n.template_version = v.version)",
        template.id.uuid(),
        template.version.saturating_sub(MAX_VERSIONS)
    )
    .execute(&mut *connection)
    .await?;
    if template.owner.is_public() {
        set_local_tenant(connection, template.owner).await?;
    }
    Ok(())
}
