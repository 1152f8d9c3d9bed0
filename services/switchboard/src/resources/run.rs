//! Runs an operation: resolves the ids, asks before what cannot be undone, sends the request, and
//! prints the response.

use std::{
    io::{IsTerminal as _, stdout},
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::value::RawValue;

use super::{Body, CreateArguments, Kind, Operation, Pages, Resource, table};
use crate::{
    api::{Api, ApiArguments, ApiRequest},
    exit::{self, Failure},
    files::{self, MAX_FILE_BYTES},
    output::{FormatArguments, ListArguments},
    prompt,
    query::percent_encode,
};

impl Operation {
    /// Runs the operation with these arguments.
    pub(super) async fn run(
        &'static self,
        resource: &'static Resource,
        matches: &ArgMatches,
    ) -> Result<(), Failure> {
        let arguments = parsed::<ApiArguments>(matches)?;
        let api = if resource.is_for_operators {
            arguments.connect_as_operator()
        } else {
            arguments.connect()
        }?;
        let (mut path, id) = self.path(&api, resource, matches).await?;
        if self.body != Body::Members {
            path += &self.query(&api, matches).await?;
        }
        if !self.question.is_empty() {
            let question = self.question.replace("{id}", &id);
            prompt::confirm(&question, matches.get_flag("yes"))?;
        }
        match self.kind {
            Kind::List => {
                let resource = self.elements.unwrap_or(resource);
                let pages = Pages {
                    api: &api,
                    resource,
                    path: &path,
                };
                parsed::<ListArguments>(matches)?
                    .print(resource.columns, &pages)
                    .await
            }
            Kind::Show => {
                let document: Box<RawValue> = api.get(&path).await.map_err(Failure::general)?;
                parsed::<FormatArguments>(matches)?.print(&document)
            }
            Kind::Create => {
                let body = self.input(matches)?;
                let api = api.with_progress(body.len());
                let creation = parsed::<CreateArguments>(matches)?.with(api);
                let created: Box<RawValue> = creation.create(&path, body).await?;
                let format = parsed::<FormatArguments>(matches)?;
                if format.is_given() {
                    return format.print(&created);
                }
                match resource.identity(&created)?.as_str() {
                    "" => Err(Failure::general("the response has no id")),
                    id => exit::print(id),
                }
            }
            Kind::Send if self.method() == "POST" => {
                let creation = parsed::<CreateArguments>(matches)?.with(api);
                let body = self.input(matches)?;
                let document: Box<RawValue> = creation.create(&path, body).await?;
                parsed::<FormatArguments>(matches)?.print(&document)
            }
            Kind::Send | Kind::Edit | Kind::Delete => {
                let response = api.bytes(self.request(&path, matches)?).await;
                let response = response.map_err(Failure::general)?;
                if response.is_empty() || self.kind == Kind::Delete {
                    return Ok(());
                }
                let document: Box<RawValue> =
                    serde_json::from_slice(&response).map_err(Failure::general)?;
                parsed::<FormatArguments>(matches)?.print(&document)
            }
            Kind::Download => {
                let response = api.bytes(self.request(&path, matches)?).await;
                let response = response.map_err(Failure::general)?;
                files::write_output(file(matches), &response)
            }
        }
    }

    /// Returns the path without its query, and the id in it.
    async fn path(
        &self,
        api: &Api,
        resource: &'static Resource,
        matches: &ArgMatches,
    ) -> Result<(String, String), Failure> {
        let params = self.params.iter();
        let chosen = params.filter(|param| param.text_of(matches).is_some());
        let first = chosen.filter_map(|param| param.route).next().unwrap_or(0);
        for (path, placeholder) in self.paths().skip(first) {
            let Some(placeholder) = placeholder else {
                return Ok((path.to_owned(), String::new()));
            };
            let named = match placeholder {
                "id" => Some(self.acts_on(resource)),
                owner => table::owner(owner),
            };
            let given = matches.get_one::<String>(placeholder);
            if let (Some(resource), Some(given)) = (named, given) {
                let id = resource.resolve(api, given).await?;
                let placeholder = format!("{{{placeholder}}}");
                return Ok((path.replace(&placeholder, &percent_encode(&id)), id));
            }
        }
        Err(Failure::usage("an id is missing"))
    }

    /// Returns the parameters as a query; elements of other resources may be named.
    async fn query(&self, api: &Api, matches: &ArgMatches) -> Result<String, Failure> {
        let mut query = String::new();
        for param in self.params {
            let default = stdout().is_terminal().then_some(param.on_terminal);
            let default = default.filter(|value| !value.is_empty());
            let given = param.text_of(matches);
            let Some(mut value) = given.or_else(|| default.map(str::to_owned)) else {
                continue;
            };
            if let Some(resource) = table::owner(param.flag) {
                value = resource.resolve(api, &value).await?;
            }
            query.push(if query.is_empty() { '?' } else { '&' });
            query += &format!("{}={}", param.member, percent_encode(&value));
        }
        Ok(query)
    }

    /// The request of a change, which applies to any version but for one that is given.
    fn request<'a>(&self, path: &'a str, matches: &ArgMatches) -> Result<ApiRequest<'a>, Failure> {
        let method = Method::from_bytes(self.method().as_bytes()).map_err(Failure::usage)?;
        let version = match matches.try_get_one::<String>("if_version") {
            Ok(Some(version)) => format!("\"{version}\""),
            _ => "*".to_owned(),
        };
        let version = HeaderValue::try_from(version).map_err(Failure::usage)?;
        let headers = match method {
            Method::GET => HeaderMap::new(),
            _ => [(header::IF_MATCH, version)].into_iter().collect(),
        };
        Ok(ApiRequest {
            method,
            path,
            headers,
            body: self.input(matches)?,
        })
    }

    /// The body.
    fn input(&self, matches: &ArgMatches) -> Result<Vec<u8>, Failure> {
        match self.body {
            Body::None => Ok(Vec::new()),
            Body::Document | Body::File => files::read_input(
                file(matches).unwrap_or_else(|| Path::new("-")),
                MAX_FILE_BYTES,
            ),
            Body::Members => {
                let members = self
                    .params
                    .iter()
                    .filter_map(|param| Some((param.member.to_owned(), param.json_of(matches)?)));
                let members: serde_json::Map<_, _> = members.collect();
                serde_json::to_vec(&members).map_err(Failure::general)
            }
        }
    }
}

fn parsed<T: clap::FromArgMatches>(matches: &ArgMatches) -> Result<T, Failure> {
    T::from_arg_matches(matches).map_err(Failure::usage)
}

fn file(matches: &ArgMatches) -> Option<&Path> {
    matches.get_one::<PathBuf>("file").map(PathBuf::as_path)
}
