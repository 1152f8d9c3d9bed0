//! The capacity of an installation, computed from what one device, one call and one reconnect cost
//! each kind of process. `cargo xtask bench --only growth` measures the costs and how they grow,
//! `cargo xtask capacity` computes, and docs/scale.md has the answers. No I/O except for the
//! documents.

mod coefficients;
mod documents;
mod growth;
mod load;
mod markdown;
mod plan;
mod plot;
mod report;

pub use coefficients::{Coefficients, Costs, Role};
pub use documents::write as write_documents;
pub use growth::{Axis, Figure, MAX_PERCENT_PER_DECADE, Point, Series};
pub use load::{Load, Machine, Prices};
pub use plan::{Limit, Nodes, Plan, predict};
