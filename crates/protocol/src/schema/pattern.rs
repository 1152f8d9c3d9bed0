//! Patterns of schemas, compiled so that the cost of matching the longest allowed text is bounded.
//!
//! Invariant: a pattern is matched by an automaton that visits one state for each byte, or its
//! states times the longest text are at most [`MAX_STEPS`]. All matches of one check together take
//! at most [`MAX_STEPS`]. (I15)

use std::{cell::Cell, collections::HashMap, marker::PhantomData, sync::Arc};

use jsonschema::{Keyword, PatternOptions, ValidationError, ValidationOptions};
use regex_automata::{
    Input,
    dfa::{Automaton, StartKind, dense, sparse},
    nfa::thompson::{self, NFA, State, WhichCaptures, pikevm::PikeVM},
    util::syntax,
};
use serde_json::Value;

use super::error::{SchemaFault, quoted};

/// The longest text without a `maxLength`: the default maximum of a frame to a device, in bytes.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Steps of one check in all of its patterns, some 10 ns each. Also the steps of one pattern on its
/// longest text.
const MAX_STEPS: usize = 10 * 1024 * 1024;
/// Bytes of the automaton with a set of states, which every pattern has at first.
const MAX_NFA_BYTES: usize = 512 * 1024;
/// Bytes of the automaton with one state at a time while it is built, and of what building it
/// takes. Bounds the time to build it.
const MAX_DFA_BYTES: usize = 512 * 1024;
const MAX_DETERMINIZATION_BYTES: usize = 128 * 1024;
/// A larger automaton is stored in the sparse form: a tenth of the size, and slower.
const MAX_DENSE_BYTES: usize = 16 * 1024;
/// Steps for each byte of the text in the sparse form, which searches the transitions of a state.
const SPARSE_STEPS: usize = 16;
/// Patterns of a registration that may fail to get one state at a time. No automaton of this kind
/// is tried for further ones.
const MAX_DFA_FAILURES: usize = 8;
/// Bytes of all compiled patterns of a registration.
const MAX_TOTAL_BYTES: usize = 1024 * 1024;
/// States of a pattern for the names of properties, which `jsonschema` matches itself.
const MAX_NAME_STATES: usize = 1024;
/// Bytes that such a pattern caches between names.
const MAX_NAME_CACHE_BYTES: usize = 32 * 1024;
/// What such a pattern is charged: its automata in both directions, and its caches.
const NAME_BYTES: usize = 128 * 1024;
/// Bytes of the automaton that the engine builds for a pattern of names with groups.
const MAX_ONE_PASS_BYTES: usize = 64 * 1024;

/// Where a schema uses a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatternUse {
    /// JSON pointer into the schema.
    pub(super) pointer: String,
    pub(super) pattern: String,
    pub(super) kind: PatternKind,
}

/// What a pattern is matched with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternKind {
    /// A text; the `maxLength` beside the pattern, in characters.
    Text { max_length: Option<usize> },
    /// The name of a property.
    Name,
}

/// The compiled patterns of a registration.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    programs: Arc<HashMap<String, Arc<Program>>>,
    bytes: usize,
    dfa_failures: usize,
}

/// The most that one byte of the params costs in one of the patterns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PatternSteps {
    pub(super) text: usize,
    pub(super) name: usize,
}

impl Patterns {
    /// Bytes of all compiled patterns.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Compiles the pattern, or refuses it when a match may cost too much.
    pub(super) fn add(&mut self, used: &PatternUse) -> Result<PatternSteps, SchemaFault> {
        match used.kind {
            PatternKind::Text { max_length } => self.add_text(&used.pattern, max_length),
            PatternKind::Name => self.add_name(&used.pattern),
        }
    }

    fn add_text(
        &mut self,
        pattern: &str,
        max_length: Option<usize>,
    ) -> Result<PatternSteps, SchemaFault> {
        let program = match self.programs.get(pattern) {
            Some(program) => Arc::clone(program),
            None => self.compile(pattern)?,
        };
        let text_bytes = max_length.map_or(MAX_TEXT_BYTES, max_bytes);
        let steps = program.steps(text_bytes.min(MAX_TEXT_BYTES));
        if steps > MAX_STEPS {
            return Err(SchemaFault::PatternTooCostly {
                pattern: quoted(pattern),
                steps,
                limit: MAX_STEPS,
                max_length: program.affordable_length(),
            });
        }
        Ok(PatternSteps {
            text: program.steps_per_byte,
            name: 0,
        })
    }

    fn compile(&mut self, pattern: &str) -> Result<Arc<Program>, SchemaFault> {
        let (program, failed) = Program::compile(pattern, self.dfa_failures < MAX_DFA_FAILURES)?;
        self.dfa_failures = self.dfa_failures.saturating_add(failed.into());
        self.charge(program.bytes)?;
        let program = Arc::new(program);
        Arc::make_mut(&mut self.programs).insert(pattern.to_owned(), Arc::clone(&program));
        Ok(program)
    }

    /// Bounds a pattern that `jsonschema` compiles and matches.
    fn add_name(&mut self, pattern: &str) -> Result<PatternSteps, SchemaFault> {
        if jsonschema_regex::analyze_pattern(pattern).is_some() {
            // Compared as a literal.
            return Ok(PatternSteps { text: 0, name: 1 });
        }
        let (nfa, properties) = compile_nfa(pattern)?;
        let states = count_steps(&nfa);
        let is_one_pass = properties.has_groups && one_pass_bytes(&nfa) > MAX_ONE_PASS_BYTES;
        if states > MAX_NAME_STATES || is_one_pass {
            return Err(SchemaFault::NamePatternTooLarge {
                pattern: quoted(pattern),
                states,
                limit: MAX_NAME_STATES,
            });
        }
        self.charge(NAME_BYTES)?;
        Ok(PatternSteps {
            text: 0,
            name: states,
        })
    }

    fn charge(&mut self, bytes: usize) -> Result<(), SchemaFault> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_TOTAL_BYTES {
            return Err(SchemaFault::PatternsTooLarge {
                limit: MAX_TOTAL_BYTES,
            });
        }
        Ok(())
    }

    /// Makes `jsonschema` match texts with these programs, and names within bounds.
    pub(super) fn apply_to(
        &self,
        options: ValidationOptions<'static>,
    ) -> ValidationOptions<'static> {
        let programs = Arc::clone(&self.programs);
        let of_names = PatternOptions::regex()
            .size_limit(MAX_NFA_BYTES)
            .dfa_size_limit(MAX_NAME_CACHE_BYTES);
        options
            .with_pattern_options(of_names)
            .with_keyword("pattern", move |schema, value, _| {
                let pattern = value.as_str().unwrap_or_default();
                let Some(program) = programs.get(pattern) else {
                    return Err(ValidationError::custom("the pattern is not measured"));
                };
                Ok(Box::new(PatternKeyword {
                    program: Arc::clone(program),
                    pattern: pattern.into(),
                    max_bytes: max_length(schema).map_or(usize::MAX, max_bytes),
                }))
            })
    }
}

/// The `maxLength` of a schema.
pub(super) fn max_length(schema: &serde_json::Map<String, Value>) -> Option<usize> {
    usize::try_from(schema.get("maxLength")?.as_u64()?).ok()
}

/// Bytes of a text with this many characters.
const fn max_bytes(length: usize) -> usize {
    length.saturating_mul(4)
}

/// A compiled pattern.
#[derive(Debug)]
struct Program {
    engine: Engine,
    steps_per_byte: usize,
    /// The number of bytes after which a search ends, whatever the length of the text.
    max_searched_bytes: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Engine {
    Dense(dense::DFA<Vec<u32>>),
    Sparse(sparse::DFA<Vec<u8>>),
    Nfa(PikeVM),
}

impl Program {
    /// Compiles a pattern. The flag is set when it was tried in vain to visit one state at a time.
    fn compile(pattern: &str, tries_dfa: bool) -> Result<(Self, bool), SchemaFault> {
        let (nfa, properties) = compile_nfa(pattern)?;
        let max_searched_bytes = match properties.max_match_bytes {
            Some(bytes) if nfa.is_always_start_anchored() => bytes.saturating_add(1),
            _ => usize::MAX,
        };
        if tries_dfa && let Some((engine, bytes)) = compile_dfa(&nfa) {
            let steps_per_byte = match &engine {
                Engine::Sparse(_) => SPARSE_STEPS,
                _ => 1,
            };
            let program = Self {
                engine,
                steps_per_byte,
                max_searched_bytes,
                bytes,
            };
            return Ok((program, false));
        }
        let (bytes, steps_per_byte) = (nfa.memory_usage(), count_steps(&nfa));
        let engine = PikeVM::new_from_nfa(nfa).map_err(|_| SchemaFault::BadPattern)?;
        let program = Self {
            engine: Engine::Nfa(engine),
            steps_per_byte,
            max_searched_bytes,
            bytes,
        };
        Ok((program, tries_dfa))
    }

    /// The steps for a text of this many bytes. The end of a text counts as one.
    fn steps(&self, text_bytes: usize) -> usize {
        let searched = text_bytes.min(self.max_searched_bytes).saturating_add(1);
        searched.saturating_mul(self.steps_per_byte)
    }

    /// The `maxLength` with which the pattern is accepted.
    fn affordable_length(&self) -> usize {
        let bytes = MAX_STEPS.checked_div(self.steps_per_byte).unwrap_or(0);
        bytes.saturating_sub(1) / 4
    }

    fn is_match(&self, text: &str) -> bool {
        let input = Input::new(text).earliest(true);
        match &self.engine {
            Engine::Dense(dfa) => matches!(dfa.try_search_fwd(&input), Ok(Some(_))),
            Engine::Sparse(dfa) => matches!(dfa.try_search_fwd(&input), Ok(Some(_))),
            // The cache is as large as the automaton and costs less than the search.
            Engine::Nfa(vm) => vm.is_match(&mut vm.create_cache(), input),
        }
    }
}

/// What the syntax of a pattern implies.
struct Properties {
    max_match_bytes: Option<usize>,
    /// The engine of `jsonschema` may build another automaton for these.
    has_groups: bool,
}

fn compile_nfa(pattern: &str) -> Result<(NFA, Properties), SchemaFault> {
    let translated =
        jsonschema_regex::to_rust_regex(pattern).map_err(|()| SchemaFault::BadPattern)?;
    let hir = syntax::parse(&translated).map_err(|_| SchemaFault::BadPattern)?;
    let config = thompson::Config::new()
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(MAX_NFA_BYTES));
    let nfa = thompson::Compiler::new()
        .configure(config)
        .build_from_hir(&hir)
        .map_err(|_| SchemaFault::BadPattern)?;
    let properties = hir.properties();
    let properties = Properties {
        max_match_bytes: properties.maximum_len(),
        has_groups: properties.explicit_captures_len() > 0
            || properties.look_set().contains_word_unicode(),
    };
    Ok((nfa, properties))
}

fn compile_dfa(nfa: &NFA) -> Option<(Engine, usize)> {
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(MAX_DFA_BYTES))
        .determinize_size_limit(Some(MAX_DETERMINIZATION_BYTES));
    let dfa = dense::Builder::new()
        .configure(config)
        .build_from_nfa(nfa)
        .ok()?;
    if dfa.memory_usage() <= MAX_DENSE_BYTES {
        let bytes = dfa.memory_usage();
        return Some((Engine::Dense(dfa), bytes));
    }
    let dfa = dfa.to_sparse().ok()?;
    let bytes = dfa.memory_usage();
    Some((Engine::Sparse(dfa), bytes))
}

/// The steps for one byte of a text when all states are visited.
fn count_steps(nfa: &NFA) -> usize {
    let steps = nfa.states().iter().map(|state| match state {
        State::Sparse(sparse) => sparse.transitions.len().div_ceil(4),
        State::Union { alternates } => alternates.len(),
        State::BinaryUnion { .. } => 2,
        _ => 1,
    });
    steps.fold(0, usize::saturating_add)
}

/// The size of the automaton that the engine builds for a pattern with groups, at most.
fn one_pass_bytes(nfa: &NFA) -> usize {
    let row_bytes = 8_usize << nfa.byte_classes().stride2();
    nfa.states().len().saturating_mul(row_bytes)
}

/// The keyword `pattern` of one schema.
struct PatternKeyword {
    program: Arc<Program>,
    pattern: Box<str>,
    /// A longer text violates the `maxLength` beside the pattern, which reports it.
    max_bytes: usize,
}

impl<'i> Keyword<'i> for PatternKeyword {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        Err(ValidationError::custom(match instance {
            Value::String(text) if text.len() > 64 => {
                format!(r#"value does not match "{}""#, self.pattern)
            }
            _ => format!(r#"{instance} does not match "{}""#, self.pattern),
        }))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        match instance {
            Value::String(text) if text.len() <= self.max_bytes => {
                spend(self.program.steps(text.len())) && self.program.is_match(text)
            }
            _ => true,
        }
    }
}

thread_local! {
    /// The steps that the check on this thread may still take in patterns. `None` once they are
    /// used up, and outside of a check.
    static STEPS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

fn spend(steps: usize) -> bool {
    let left = STEPS_LEFT.get().and_then(|left| left.checked_sub(steps));
    STEPS_LEFT.set(left);
    left.is_some()
}

/// The steps of one check in patterns, on this thread, until it is dropped.
pub(super) struct StepBudget(PhantomData<*const ()>);

impl StepBudget {
    pub(super) fn start() -> Self {
        STEPS_LEFT.set(Some(MAX_STEPS));
        Self(PhantomData)
    }

    /// Whether the steps are used up. Then no pattern was matched any further, and the results
    /// of the check are void.
    #[expect(clippy::unused_self, reason = "the steps are those of the check")]
    pub(super) fn is_exhausted(&self) -> bool {
        STEPS_LEFT.get().is_none()
    }
}

impl Drop for StepBudget {
    fn drop(&mut self) {
        STEPS_LEFT.set(None);
    }
}

#[cfg(test)]
mod tests;
