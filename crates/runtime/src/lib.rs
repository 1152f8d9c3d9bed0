//! Shared process infrastructure: settings, logs, metrics, traces, the admin port, HTTP server and
//! client, and shutdown. It knows nothing of devices, calls, Redis or SQL.

pub mod admin;
pub mod api;
pub mod backoff;
pub mod budget;
pub mod clock;
pub mod http;
pub mod idempotency;
pub mod latency;
pub mod metrics;
pub mod outbound;
pub mod paging;
pub mod problem;
pub mod quota;
pub mod rate_limit;
pub mod ready;
pub mod response_budget;
pub mod settings;
pub mod shutdown;
pub mod signals;
pub mod telemetry;
pub mod trace;

pub use ready::ready;
