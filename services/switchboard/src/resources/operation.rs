//! One operation of a resource: its route, its arguments, and what is done with the response.

use super::Resource;

/// A subcommand that is one request, or one list.
pub(crate) struct Operation {
    /// The subcommand.
    pub(crate) name: &'static str,
    /// Method and path as in the API's document. `{id}` is the positional argument, `{npc}` the flag
    /// `--npc` that names an element of another resource. With several, one has to be chosen.
    pub(crate) routes: &'static [&'static str],
    /// The help: one sentence.
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
    pub(crate) params: &'static [Param],
    pub(crate) body: Body,
    /// The question before a change that cannot be undone; empty if there is none.
    pub(crate) question: &'static str,
    /// Whether the element is a device that has to be connected: a shell proposes only those.
    pub(crate) needs_connection: bool,
    /// What a list shows or a deletion deletes, if that is something else than the elements of the resource.
    pub(crate) elements: Option<&'static Resource>,
    /// Arguments of examples, besides those that follow from the kind.
    pub(crate) examples: &'static [&'static str],
}

/// What is done with the response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All pages are read, and the elements are printed.
    List,
    /// The response is printed.
    Show,
    /// The id is printed.
    Create,
    /// The response is printed, if there is one.
    Send,
    /// An element is changed by a merge patch, and printed.
    Edit,
    /// Nothing is printed.
    Delete,
    /// The bytes are written to a file.
    Download,
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// JSON of a file, or of stdin without one.
    Document,
    /// The bytes of a file.
    File,
    /// A JSON object of the parameters; otherwise they are in the query.
    Members,
}

/// A parameter of an operation.
pub(crate) struct Param {
    /// Name in the API.
    pub(crate) member: &'static str,
    /// Name of the flag; a positional argument if it is empty.
    pub(crate) flag: &'static str,
    pub(crate) value: Value,
    pub(crate) help: &'static str,
    pub(crate) is_required: bool,
    /// The value if stdout is a terminal and none is given; empty if there is none.
    pub(crate) on_terminal: &'static str,
    /// The route that is used if it is given, of several without placeholders.
    pub(crate) route: Option<usize>,
}

/// The type of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// With the name of the value in the help.
    Text(&'static str),
    /// A list: the flag can be repeated.
    Texts(&'static str),
    Choice(&'static [&'static str]),
    Json,
    /// A time, as [`crate::moment`] reads it.
    Time,
    /// True or false; true if the flag has no value.
    Bool,
    /// A flag without a value, and what it means.
    Switch(&'static str),
}

impl Operation {
    const fn new(
        name: &'static str,
        routes: &'static [&'static str],
        kind: Kind,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            routes,
            about,
            kind,
            params: &[],
            body: Body::None,
            question: "",
            needs_connection: false,
            elements: None,
            examples: &[],
        }
    }

    pub(super) const fn list(routes: &'static [&'static str], about: &'static str) -> Self {
        Self::new("list", routes, Kind::List, about)
    }

    pub(super) const fn show(routes: &'static [&'static str], about: &'static str) -> Self {
        Self::new("show", routes, Kind::Show, about)
    }

    pub(super) const fn edit(routes: &'static [&'static str], about: &'static str) -> Self {
        Self::new("edit", routes, Kind::Edit, about).body(Body::Document)
    }

    /// A deletion, with the question before it.
    pub(super) const fn delete(
        routes: &'static [&'static str],
        about: &'static str,
        question: &'static str,
    ) -> Self {
        Self::new("delete", routes, Kind::Delete, about).asks(question)
    }

    pub(super) const fn create(routes: &'static [&'static str], about: &'static str) -> Self {
        Self::new("create", routes, Kind::Create, about).body(Body::Document)
    }

    pub(super) const fn send(routes: &'static [&'static str], about: &'static str) -> Self {
        Self::new("create", routes, Kind::Send, about)
    }

    pub(super) const fn download(routes: &'static [&'static str], about: &'static str) -> Self {
        Self::new("download", routes, Kind::Download, about)
    }

    pub(super) const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    pub(super) const fn params(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    pub(super) const fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    pub(super) const fn asks(mut self, question: &'static str) -> Self {
        self.question = question;
        self
    }

    pub(super) const fn of_connected_devices(mut self) -> Self {
        self.needs_connection = true;
        self
    }

    pub(super) const fn of_elements(mut self, elements: &'static Resource) -> Self {
        self.elements = Some(elements);
        self
    }

    pub(super) const fn examples(mut self, examples: &'static [&'static str]) -> Self {
        self.examples = examples;
        self
    }

    /// The method, which all routes share.
    pub(super) fn method(&self) -> &'static str {
        self.routes
            .first()
            .and_then(|route| route.split_once(' '))
            .map_or("GET", |(method, _)| method)
    }

    /// The paths, each with the name of its placeholder.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        self.routes.iter().filter_map(|route| {
            let (_, path) = route.split_once(' ')?;
            let placeholder = path
                .split_once('{')
                .and_then(|(_, rest)| rest.split_once('}'));
            Some((path, placeholder.map(|(name, _)| name)))
        })
    }

    /// Whether the positional argument is an element of the resource.
    pub(super) fn has_id(&self) -> bool {
        self.paths()
            .any(|(_, placeholder)| placeholder == Some("id"))
    }

    /// The resource of the positional argument.
    pub(super) fn acts_on(&self, resource: &'static Resource) -> &'static Resource {
        match self.kind {
            Kind::Delete => self.elements.unwrap_or(resource),
            _ => resource,
        }
    }

    /// The other resources whose elements are named by flags.
    pub(super) fn owners(&self) -> impl Iterator<Item = &'static str> {
        self.paths()
            .filter_map(|(_, placeholder)| placeholder.filter(|name| *name != "id"))
    }
}

impl Param {
    /// A flag with a text.
    pub(super) const fn text(
        flag: &'static str,
        member: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self::of(flag, member, Value::Text(value), help)
    }

    /// A flag with a time.
    pub(super) const fn time(flag: &'static str, help: &'static str) -> Self {
        Self::of(flag, flag, Value::Time, help)
    }

    pub(super) const fn of(
        flag: &'static str,
        member: &'static str,
        value: Value,
        help: &'static str,
    ) -> Self {
        Self {
            member,
            flag,
            value,
            help,
            is_required: false,
            on_terminal: "",
            route: None,
        }
    }

    pub(super) const fn chooses(mut self, route: usize) -> Self {
        self.route = Some(route);
        self
    }

    pub(super) const fn on_terminal(mut self, value: &'static str) -> Self {
        self.on_terminal = value;
        self
    }

    /// A positional argument.
    pub(super) const fn positional(
        member: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self::of("", member, Value::Text(value), help).required()
    }

    pub(super) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }
}
