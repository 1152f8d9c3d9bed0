//! What a device's services are to whoever uses them as tools: safe names, words without anything hidden, and who may.
//! Never: a protocol's types, I/O, or a service parsed; those that speak to models do that.

mod describe;
mod policy;
pub mod text;
pub mod tool_name;

pub use describe::{Described, describe};
pub use policy::permits;
pub use tool_name::Naming;
