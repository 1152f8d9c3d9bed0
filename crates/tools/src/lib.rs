//! Device services as tools: names that all clients accept, text without hidden characters, and
//! tool policies.

mod describe;
mod policy;
pub mod text;
pub mod tool_name;

pub use describe::{ToolDescription, describe};
pub use policy::permits;
pub use tool_name::Naming;
