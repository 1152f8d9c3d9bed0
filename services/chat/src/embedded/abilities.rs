//! What a device can do, read once from the services it registered.
//! Never: a service that its character may not use, or words that hide something.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde_json::{Map, Value};
use switchboard_tools::text::clean_to;

use super::{
    concepts::{Kind, Meaning},
    deeds,
    features::{self, Feature},
    parameters::{self, Parameter, Takes},
    words::Sentence,
};

/// What is shown of a description.
const SHOWN_BYTES: usize = 200;
const NAME: f64 = 1.0;
const DESCRIPTION: f64 = 0.8;
const VALUE: f64 = 0.7;
const PARAMETER: f64 = 0.5;

/// What a device can do, in the order of the names.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    pub(super) all: Vec<Ability>,
    /// In how many of them a feature is.
    pub(super) holders: HashMap<Feature, u32>,
}

/// One service.
#[derive(Debug)]
pub(crate) struct Ability {
    pub(crate) service: Box<str>,
    /// For people.
    pub(crate) description: String,
    /// How long a call may take, when the device says so.
    pub(crate) timeout: Option<Duration>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) features: HashMap<Feature, f64>,
    /// What its name and description mean.
    pub(super) meanings: HashSet<Meaning>,
    /// What its name alone means.
    pub(super) named: HashSet<Meaning>,
    /// What it says when this is asked for is all that it does.
    pub(crate) tells: bool,
    /// What is said of what it does, rather than of what it does it with.
    pub(super) verbs: HashSet<Feature>,
}

impl Abilities {
    /// Reads services that passed the schema gate.
    pub(crate) fn read(services: Map<String, Value>) -> Self {
        let all: Vec<Ability> = services
            .into_iter()
            .map(|(name, definition)| Ability::read(name, &definition))
            .collect();
        let mut holders = HashMap::new();
        for feature in all.iter().flat_map(|ability| ability.features.keys()) {
            *holders.entry(feature.clone()).or_default() += 1;
        }
        Self { all, holders }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ability> {
        self.all.iter()
    }
}

impl Ability {
    fn read(service: String, definition: &Value) -> Self {
        let description = definition
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let parameters = parameters::read(definition.get("parameters"));
        let (name_words, described) = (Sentence::read(&service), Sentence::read(description));
        let mut features = HashMap::new();
        let mut add = |sentence: &Sentence, worth: f64| {
            for (feature, _, _) in features::of(sentence) {
                let known = features.entry(feature).or_insert(0.0_f64);
                *known = known.max(worth);
            }
        };
        add(&name_words, NAME);
        add(&described, DESCRIPTION);
        for parameter in &parameters {
            add(&parameter.words, PARAMETER);
            if let Takes::OneOf(values) = &parameter.takes {
                let values = values.iter().filter_map(Value::as_str);
                values.for_each(|value| add(&Sentence::read(value), VALUE));
            }
        }
        let meanings_of = |sentence: &Sentence| {
            sentence
                .tokens
                .iter()
                .flat_map(|token| token.meanings.clone())
                .collect::<HashSet<_>>()
        };
        let named = meanings_of(&name_words);
        let mut meanings = meanings_of(&described);
        meanings.extend(&named);
        let timeout = definition.get("timeout_ms").and_then(Value::as_u64);
        let mut read = Self {
            description: clean_to(
                if description.trim().is_empty() {
                    &service
                } else {
                    description
                },
                SHOWN_BYTES,
            ),
            service: service.into(),
            timeout: timeout.map(Duration::from_millis),
            parameters,
            features,
            meanings,
            named,
            tells: false,
            verbs: HashSet::new(),
        };
        read.tells = deeds::tells(&read, &name_words, &described);
        read.verbs = deeds::verbs(&read, &name_words);
        read
    }

    /// It tells something, and changes nothing.
    pub(super) fn only_reads(&self) -> bool {
        let deeds = |meanings: &HashSet<Meaning>| {
            meanings.iter().any(|meaning| meaning.kind() == Kind::Deed)
        };
        if self.named.contains(&Meaning::Get) {
            return true;
        }
        self.meanings.contains(&Meaning::Get) && !deeds(&self.named)
    }

    /// It may be what ends or removes something.
    pub(crate) fn may_undo(&self) -> bool {
        let undoes = [Meaning::Stop, Meaning::Delete, Meaning::Off];
        let mut meanings = undoes.iter();
        self.is_told_what() || meanings.any(|meaning| self.meanings.contains(meaning))
    }

    /// All that it does is to end something.
    pub(crate) fn only_stops(&self) -> bool {
        self.named.iter().eq([&Meaning::Stop])
    }

    /// Whether a text is one of the values that it takes.
    pub(crate) fn takes_value(&self, text: &str) -> bool {
        let text = text.trim().to_lowercase();
        let mut taken = self.parameters.iter();
        taken.any(|parameter| match &parameter.takes {
            Takes::OneOf(values) => {
                let mut values = values.iter().filter_map(Value::as_str);
                values.any(|value| value.to_lowercase() == text)
            }
            _ => false,
        })
    }

    /// Its values, not its name, say what is done.
    pub(super) fn is_told_what(&self) -> bool {
        self.parameters
            .iter()
            .any(|parameter| matches!(parameter.takes, Takes::Flag | Takes::OneOf(_)))
    }
}
