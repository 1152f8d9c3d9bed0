//! The versions of templates, for NPCs that stay with one.
//! Never: a version without an end to how many there are, or one gone that an NPC stays with.

use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::TemplateId;

use super::{Template, TemplateSettings};
use crate::{
    Store, StoreError,
    connections::{speak_throughout, speak_within},
    database::bounded,
    owner::Owner,
};

/// How many versions of a template are kept, those with which an NPC stays apart.
const KEPT_VERSIONS: i64 = 100;

impl Store {
    /// The settings that a template had in this version, for a reader who sees the template.
    ///
    /// # Errors
    /// As every query.
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
        let found =
            bounded(async { query.fetch_optional(&mut *self.within(reader).await?).await }).await?;
        Ok(found.map(|settings| settings.0))
    }
}

/// Keeps the version that was just written, and lets go what is old. Whoever has written the template's row keeps out
/// everybody who would stay with a version meanwhile.
pub(super) async fn keep(
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
    // NPCs of every organisation may stay with a version of a public one.
    if template.owner.is_public() {
        speak_throughout(connection).await?;
    }
    sqlx::query!(
        "DELETE FROM template_versions v
         WHERE v.template_id = $1 AND v.version <= $2
               AND NOT EXISTS (SELECT FROM npcs n WHERE n.template_id = v.template_id AND n.template_version = v.version)",
        template.id.uuid(),
        template.version.saturating_sub(KEPT_VERSIONS)
    )
    .execute(&mut *connection)
    .await?;
    if template.owner.is_public() {
        speak_within(connection, template.owner).await?;
    }
    Ok(())
}
