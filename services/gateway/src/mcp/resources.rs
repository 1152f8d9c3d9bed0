//! Memories and pictures as resources: listed, and read by URI.
//! Never: a resource of another organisation, which looks as if it were not there.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use rmcp::{
    ErrorData,
    model::{Resource, ResourceContents, ResourceTemplate},
};
use serde_json::json;
use switchboard_protocol::id::OrgId;
use switchboard_store::{ListedResource, ObjectKey, ResourceBody};

use super::{
    access::Visit,
    knowledge::{Page, paged, unreadable},
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
) -> Result<ResourceContents, ErrorData> {
    let org = visit.reads().ok_or_else(|| unknown(uri))?;
    contents(gateway, org, uri).await
}

/// What stands under a URI.
pub(super) async fn contents(
    gateway: &Gateway,
    org: OrgId,
    uri: &str,
) -> Result<ResourceContents, ErrorData> {
    let found = gateway.store.resource_by_uri(org, uri).await;
    let found = found.map_err(|error| unreadable(&error))?;
    let found = found.ok_or_else(|| unknown(uri))?;
    let contents = match &found.body {
        ResourceBody::Text(text) => ResourceContents::text(text, &found.uri),
        ResourceBody::Picture(key) => {
            let bytes = object(gateway, key).await?;
            ResourceContents::blob(BASE64_STANDARD.encode(bytes), &found.uri)
        }
    };
    Ok(contents.with_mime_type(found.mime_type))
}

/// The bytes of a picture.
pub(super) async fn object(gateway: &Gateway, key: &ObjectKey) -> Result<Bytes, ErrorData> {
    let Some(objects) = gateway.store.objects() else {
        let detail = "this gateway has no object store: its operator sets --objects or SWITCHBOARD_OBJECTS, the same as for the control plane";
        return Err(ErrorData::internal_error(detail, None));
    };
    objects.get(key).await.map_err(|error| {
        tracing::error!(
            %error,
            cause = std::error::Error::source(&error).map(tracing::field::display),
            object.key = %key,
            "a picture could not be read"
        );
        ErrorData::internal_error("the picture cannot be read at the moment", None)
    })
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
