//! Memories and pictures as resources: listed, and read by URI.
//! Never: a resource of another organisation, which looks as if it were not there.

use rmcp::{
    ErrorData, RoleServer,
    model::{Resource, ResourceContents, ResourceTemplate},
    service::RequestContext,
};
use serde_json::json;
use switchboard_protocol::id::OrgId;
use switchboard_store::{ListedResource, Resource as Found, ResourceBody};

use super::{
    access::Visit,
    knowledge::{Page, paged, unreadable},
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
    let Some(org) = visit.reads() else {
        return Ok(Page::empty());
    };
    let found = gateway.store.list_resources(org, cursor, A_PAGE + 1).await;
    let found = found.map_err(|error| unreadable(&error))?;
    Ok(paged(found, A_PAGE, |found| found.uri.clone(), listed))
}

pub(super) async fn list_templates(
    gateway: &Gateway,
    visit: &Visit,
    cursor: Option<&str>,
) -> Result<Page<ResourceTemplate>, ErrorData> {
    let Some(org) = visit.reads() else {
        return Ok(Page::empty());
    };
    let found = gateway
        .store
        .list_resource_templates(org, cursor, A_PAGE + 1)
        .await;
    let found = found.map_err(|error| unreadable(&error))?;
    Ok(paged(
        found,
        A_PAGE,
        |found| found.uri.clone(),
        listed_template,
    ))
}

pub(super) async fn read(
    gateway: &Gateway,
    visit: &Visit,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ResourceContents, ErrorData> {
    let org = visit.reads().ok_or_else(|| unknown(uri))?;
    let found = find(gateway, org, uri).await?;
    if let ResourceBody::Picture { size_bytes, .. } = &found.body {
        let bytes = u64::try_from(*size_bytes).unwrap_or_default();
        gateway.mcp.pictures.reserve(bytes, context).await?;
    }
    contents(gateway, found).await
}

/// Whether there is something to read.
pub(super) async fn check(gateway: &Gateway, visit: &Visit, uri: &str) -> Result<(), ErrorData> {
    let org = visit.reads().ok_or_else(|| unknown(uri))?;
    find(gateway, org, uri).await.map(drop)
}

/// What stands under a URI; a picture's bytes are not read yet.
pub(super) async fn find(gateway: &Gateway, org: OrgId, uri: &str) -> Result<Found, ErrorData> {
    let found = gateway.store.resource_by_uri(org, uri).await;
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
