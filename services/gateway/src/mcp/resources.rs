//! Memories, pictures and skills books as MCP resources: listed, and read by URI.
//!
//! Invariant: a resource outside of the caller's scope looks like one that does not exist.

mod book_uri;
mod books;
pub(super) mod pictures;

use rmcp::{
    ErrorData, RoleServer,
    model::{
        ArgumentInfo, CompletionContext, CompletionInfo, Resource, ResourceContents,
        ResourceTemplate,
    },
    service::RequestContext,
};
use serde_json::json;
use switchboard_catalog::ListedResource;
use switchboard_runtime::paging::Limit;
use switchboard_store::{Resource as Found, ResourceBody};

use super::{
    readable::{Page, ReadScope, merge, paginate, unavailable},
    transport::auth::ClientContext,
};
use crate::Gateway;

/// Resources on one page.
const PAGE_LIMIT: Limit = Limit::fixed(200);

pub(super) async fn list(
    gateway: &Gateway,
    client: &ClientContext,
    cursor: Option<&str>,
) -> Result<Page<Resource>, ErrorData> {
    let Some(scope) = client.readable() else {
        return Ok(Page::empty());
    };
    let (found, books) = tokio::try_join!(
        stored(gateway, scope, false, cursor),
        books::list(gateway, scope, cursor, PAGE_LIMIT.fetch_count())
    )?;
    let found = merge(books, found, |found| &found.uri);
    Ok(paginate(
        found,
        PAGE_LIMIT,
        |found| found.uri.clone(),
        resource,
    ))
}

pub(super) async fn list_templates(
    gateway: &Gateway,
    client: &ClientContext,
    cursor: Option<&str>,
) -> Result<Page<ResourceTemplate>, ErrorData> {
    let Some(scope) = client.readable() else {
        return Ok(Page::empty());
    };
    let (found, books) = tokio::try_join!(
        stored(gateway, scope, true, cursor),
        books::list_templates(gateway, scope, cursor)
    )?;
    let found = merge(books, found, |found| &found.uri);
    Ok(paginate(
        found,
        PAGE_LIMIT,
        |found| found.uri.clone(),
        resource_template,
    ))
}

/// Memories and pictures, up to one more than a page.
async fn stored(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    with_expressions: bool,
    after: Option<&str>,
) -> Result<Vec<ListedResource>, ErrorData> {
    let (store, limit) = (&gateway.store, PAGE_LIMIT.fetch_count());
    let found = match scope {
        ReadScope::Org(org) if with_expressions => {
            store.list_resource_templates(org, after, limit).await
        }
        ReadScope::Org(org) => store.list_resources(org, after, limit).await,
        ReadScope::Npc(npc) => {
            let found = store.npc_resources(npc, with_expressions, after, limit);
            found.await
        }
    };
    found.map_err(|error| unavailable(&error))
}

/// Completions of an expression in a resource template.
pub(super) async fn complete(
    gateway: &Gateway,
    client: &ClientContext,
    template: &str,
    argument: &ArgumentInfo,
    context: Option<&CompletionContext>,
) -> Result<CompletionInfo, ErrorData> {
    let Some(scope) = client.readable() else {
        return Ok(CompletionInfo::default());
    };
    let argument = (argument.name.as_str(), argument.value.as_str());
    let values = books::complete(gateway, scope, template, argument, context).await?;
    CompletionInfo::with_all_values(values).map_err(|error| ErrorData::internal_error(error, None))
}

pub(super) async fn read(
    gateway: &Gateway,
    client: &ClientContext,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ResourceContents, ErrorData> {
    let scope = client.readable().ok_or_else(|| unknown(uri))?;
    let found = find(gateway, scope, uri).await?;
    if let ResourceBody::Picture { size_bytes, .. } = &found.body {
        let bytes = u64::try_from(*size_bytes).unwrap_or_default();
        let budget = &gateway.mcp.picture_budget;
        budget.reserve(scope.org(), bytes, context).await?;
    }
    contents(gateway, found).await
}

/// Checks that a resource exists and can be read.
pub(super) async fn check(
    gateway: &Gateway,
    client: &ClientContext,
    uri: &str,
) -> Result<(), ErrorData> {
    let scope = client.readable().ok_or_else(|| unknown(uri))?;
    find(gateway, scope, uri).await.map(drop)
}

/// The resource with this URI. The bytes of a picture are not read yet.
pub(super) async fn find(
    gateway: &Gateway,
    scope: ReadScope<'_>,
    uri: &str,
) -> Result<Found, ErrorData> {
    if let Some(found) = books::find(gateway, scope, uri).await? {
        return Ok(found);
    }
    let found = match scope {
        ReadScope::Org(org) => gateway.store.resource_by_uri(org, uri).await,
        ReadScope::Npc(npc) => gateway.store.npc_resource_by_uri(npc, uri).await,
    };
    let found = found.map_err(|error| unavailable(&error))?;
    found.ok_or_else(|| unknown(uri))
}

/// The contents of a resource. The bytes of a picture must have been reserved.
pub(super) async fn contents(
    gateway: &Gateway,
    found: Found,
) -> Result<ResourceContents, ErrorData> {
    let contents = match found.body {
        ResourceBody::Text(text) => ResourceContents::text(text, &found.uri),
        ResourceBody::Picture { key, .. } => {
            ResourceContents::blob(pictures::read_base64(gateway, &key).await?, &found.uri)
        }
    };
    Ok(contents.with_mime_type(found.mime_type))
}

fn resource(found: ListedResource) -> Resource {
    let mut resource = Resource::new(found.uri, found.name)
        .with_title(found.title)
        .with_mime_type(found.mime_type);
    resource.description = found.description;
    resource.size = found.size_bytes.and_then(|size| u64::try_from(size).ok());
    resource
}

fn resource_template(found: ListedResource) -> ResourceTemplate {
    let mut template = ResourceTemplate::new(found.uri, found.name)
        .with_title(found.title)
        .with_mime_type(found.mime_type);
    template.description = found.description;
    template
}

fn unknown(uri: &str) -> ErrorData {
    let detail = "there is no such resource; see resources/list and resources/templates/list";
    ErrorData::resource_not_found(detail, Some(json!({ "uri": uri })))
}
