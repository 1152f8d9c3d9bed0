//! Services of devices as MCP tools: `tools/list` and `tools/call`.
//!
//! A `tools/call` runs through one sequence:
//! 1. the request is read by `transport::fast_path`, or by rmcp and [`call::perform`];
//! 2. [`resolve`] finds the device and the tool;
//! 3. [`call::prepare`] checks limits and approvals, and builds the call;
//! 4. the call is made, with [`progress`] if the client asked for it;
//! 5. [`call::conclude`] turns the answer into a [`result`] or an [`elicitation`]; the fast path
//!    serialises the most common one as a [`plain_result`].

mod approvals;
pub(super) mod call;
pub(super) mod catalog;
pub(super) mod elicitation;
mod headers;
pub(super) mod list;
pub(super) mod plain_result;
mod progress;
pub(super) mod resolve;
mod result;
mod toolset;
pub(super) mod trace;
