//! Memories, pictures and skills books as resources: listed, and read by URI.
//! Never: a resource of another organisation or NPC, which looks as if it were not there.

use rmcp::{
    ErrorData, RoleServer,
    model::{
        ArgumentInfo, CompletionContext, CompletionInfo, Resource, ResourceContents,
        ResourceTemplate,
    },
    service::RequestContext,
};
use serde_json::json;
use switchboard_store::{ListedResource, Resource as Found, ResourceBody};

use super::{
    access::Visit,
    books,
    knowledge::{Page, Readable, merged, paged, unreadable},
    pictures,
};
use crate::Gateway;

/// Resources on one page.
const A_PAGE: u32 = 200;

pub(super) async fn list(
    gateway: &Gateway,
    visit: &Visit,
    cursor: Option<&str>,
) -> Result<Page<Resource>, ErrorData> {
    let Some(readable) = visit.reads() else {
        return Ok(Page::empty());
    };
    let (found, books) = tokio::try_join!(
        stored(gateway, readable, false, cursor),
        books::list(gateway, readable, cursor, A_PAGE + 1)
    )?;
    let found = merged(books, found, |found| &found.uri);
    Ok(paged(found, A_PAGE, |found| found.uri.clone(), listed))
}

pub(super) async fn list_templates(
    gateway: &Gateway,
    visit: &Visit,
    cursor: Option<&str>,
) -> Result<Page<ResourceTemplate>, ErrorData> {
    let Some(readable) = visit.reads() else {
        return Ok(Page::empty());
    };
    let (found, books) = tokio::try_join!(
        stored(gateway, readable, true, cursor),
        books::list_templates(gateway, readable, cursor)
    )?;
    let found = merged(books, found, |found| &found.uri);
    Ok(paged(
        found,
        A_PAGE,
        |found| found.uri.clone(),
        listed_template,
    ))
}

/// Memories and pictures, one more than a page.
async fn stored(
    gateway: &Gateway,
    readable: Readable<'_>,
    with_expressions: bool,
    after: Option<&str>,
) -> Result<Vec<ListedResource>, ErrorData> {
    let (store, limit) = (&gateway.store, A_PAGE + 1);
    let found = match readable {
        Readable::Of(org) if with_expressions => {
            store.list_resource_templates(org, after, limit).await
        }
        Readable::Of(org) => store.list_resources(org, after, limit).await,
        Readable::OfNpc(npc) => {
            let found = store.npc_resources(npc, with_expressions, after, limit);
            found.await
        }
    };
    found.map_err(|error| unreadable(&error))
}

/// Suggestions for what stands in an expression of a resource template.
pub(super) async fn complete(
    gateway: &Gateway,
    visit: &Visit,
    template: &str,
    argument: &ArgumentInfo,
    context: Option<&CompletionContext>,
) -> Result<CompletionInfo, ErrorData> {
    let Some(readable) = visit.reads() else {
        return Ok(CompletionInfo::default());
    };
    let argument = (argument.name.as_str(), argument.value.as_str());
    let values = books::complete(gateway, readable, template, argument, context).await?;
    CompletionInfo::with_all_values(values).map_err(|error| ErrorData::internal_error(error, None))
}

pub(super) async fn read(
    gateway: &Gateway,
    visit: &Visit,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ResourceContents, ErrorData> {
    let readable = visit.reads().ok_or_else(|| unknown(uri))?;
    let found = find(gateway, readable, uri).await?;
    if let ResourceBody::Picture { size_bytes, .. } = &found.body {
        let bytes = u64::try_from(*size_bytes).unwrap_or_default();
        gateway.mcp.pictures.reserve(bytes, context).await?;
    }
    contents(gateway, found).await
}

/// Whether there is something to read.
pub(super) async fn check(gateway: &Gateway, visit: &Visit, uri: &str) -> Result<(), ErrorData> {
    let readable = visit.reads().ok_or_else(|| unknown(uri))?;
    find(gateway, readable, uri).await.map(drop)
}

/// What stands under a URI; a picture's bytes are not read yet.
pub(super) async fn find(
    gateway: &Gateway,
    readable: Readable<'_>,
    uri: &str,
) -> Result<Found, ErrorData> {
    if let Some(found) = books::find(gateway, readable, uri).await? {
        return Ok(found);
    }
    let found = match readable {
        Readable::Of(org) => gateway.store.resource_by_uri(org, uri).await,
        Readable::OfNpc(npc) => gateway.store.npc_resource_by_uri(npc, uri).await,
    };
    let found = found.map_err(|error| unreadable(&error))?;
    found.ok_or_else(|| unknown(uri))
}

/// The same as clients read it. There has to be room for a picture.
pub(super) async fn contents(
    gateway: &Gateway,
    found: Found,
) -> Result<ResourceContents, ErrorData> {
    let contents = match found.body {
        ResourceBody::Text(text) => ResourceContents::text(text, &found.uri),
        ResourceBody::Picture { key, .. } => {
            ResourceContents::blob(pictures::encoded(gateway, &key).await?, &found.uri)
        }
    };
    Ok(contents.with_mime_type(found.mime_type))
}

fn listed(found: ListedResource) -> Resource {
    let mut resource = Resource::new(found.uri, found.name)
        .with_title(found.title)
        .with_mime_type(found.mime_type);
    resource.description = found.description;
    resource.size = found.size_bytes.and_then(|size| u64::try_from(size).ok());
    resource
}

fn listed_template(found: ListedResource) -> ResourceTemplate {
    let mut template = ResourceTemplate::new(found.uri, found.name)
        .with_title(found.title)
        .with_mime_type(found.mime_type);
    template.description = found.description;
    template
}

fn unknown(uri: &str) -> ErrorData {
    let detail = "there is no such resource; resources/list and resources/templates/list have those that there are";
    ErrorData::resource_not_found(detail, Some(json!({ "uri": uri })))
}
