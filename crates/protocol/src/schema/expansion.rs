//! The cost of a schema once every `$ref` is replaced by its target.
//!
//! Invariant: nothing is expanded; costs are added up. Otherwise a small schema could exhaust
//! memory.

use std::collections::HashMap;

use super::{
    budget::{Located, Subschema},
    error::SchemaFault,
};

/// Nesting depth of schemas with references followed, which bounds the recursion of compiling and
/// checking.
const MAX_HEIGHT: usize = 32;

/// The cost of a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// JSON values.
    pub(super) nodes: usize,
    /// Patterns that texts are matched with.
    pub(super) patterns: usize,
    /// Patterns that the names of properties are matched with.
    pub(super) name_patterns: usize,
    /// Bytes of values that an error may quote.
    pub(super) bytes: usize,
}

impl Cost {
    /// One value that is not quoted.
    pub(super) const NODE: Self = Self {
        nodes: 1,
        patterns: 0,
        name_patterns: 0,
        bytes: 0,
    };

    pub(super) fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.patterns = self.patterns.saturating_add(other.patterns);
        self.name_patterns = self.name_patterns.saturating_add(other.name_patterns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Adds up the schemas, of which the first is the root. Fails at an invalid reference.
pub(super) fn expand(
    schemas: &[Subschema],
    by_pointer: &HashMap<String, usize>,
    max_nodes: usize,
) -> Result<Cost, Located> {
    let mut expansion = Expansion {
        schemas,
        by_pointer,
        states: vec![State::Unseen; schemas.len()],
    };
    let whole = expansion.visit(0)?;
    if whole.cost.nodes > max_nodes {
        let fault = SchemaFault::TooExpansive { limit: max_nodes };
        return Err(Located {
            pointer: String::new(),
            fault,
        });
    }
    Ok(whole.cost)
}

#[derive(Clone, Copy)]
enum State {
    Unseen,
    Open,
    Done(ExpandedCost),
}

/// A schema with all schemas that it contains and references.
#[derive(Clone, Copy)]
struct ExpandedCost {
    cost: Cost,
    height: usize,
}

struct Expansion<'s> {
    schemas: &'s [Subschema],
    by_pointer: &'s HashMap<String, usize>,
    states: Vec<State>,
}

impl Expansion<'_> {
    /// Recurses as deep as there are schemas, which is some hundreds of small frames. Each schema
    /// is visited once, so the work is linear however large the expansion is.
    fn visit(&mut self, index: usize) -> Result<ExpandedCost, Located> {
        let schemas = self.schemas;
        let Some(schema) = schemas.get(index) else {
            return Ok(ExpandedCost {
                cost: Cost::default(),
                height: 0,
            });
        };
        match self.states.get(index) {
            Some(State::Done(total)) => return Ok(*total),
            Some(State::Open) => return Err(located(schema, SchemaFault::CyclicRef)),
            _ => self.set(index, State::Open),
        }
        let mut total = ExpandedCost {
            cost: schema.own,
            height: 0,
        };
        for &inner in schema.inner.iter().chain(self.target(schema)?.as_ref()) {
            let inner = self.visit(inner)?;
            total.cost.add(inner.cost);
            total.height = total.height.max(inner.height);
        }
        total.height = total.height.saturating_add(1);
        if total.height > MAX_HEIGHT {
            return Err(located(
                schema,
                SchemaFault::TooDeepExpansion { limit: MAX_HEIGHT },
            ));
        }
        self.set(index, State::Done(total));
        Ok(total)
    }

    /// Returns the target of the schema's `$ref`, which must be a place that was measured as a
    /// schema.
    fn target(&self, schema: &Subschema) -> Result<Option<usize>, Located> {
        let Some(pointer) = &schema.reference else {
            return Ok(None);
        };
        match self.by_pointer.get(pointer) {
            Some(&index) => Ok(Some(index)),
            None => Err(located(schema, SchemaFault::DanglingRef)),
        }
    }

    fn set(&mut self, index: usize, state: State) {
        if let Some(entry) = self.states.get_mut(index) {
            *entry = state;
        }
    }
}

fn located(schema: &Subschema, fault: SchemaFault) -> Located {
    Located {
        pointer: schema.pointer.clone(),
        fault,
    }
}
