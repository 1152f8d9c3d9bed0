//! For tests, checks (`xtask`) and measurements (`bench`): processes, private servers and databases,
//! the program under test, waits with a deadline, and reviewed snapshots.

pub mod certificates;
pub mod child;
pub mod command;
pub mod data_folder;
pub mod database;
pub mod eventually;
pub mod haproxy;
pub mod postgres_pair;
pub mod postgres_server;
pub mod process;
pub mod programs;
pub mod redis_server;
pub mod run;
pub mod s3_server;
pub mod sentinels;
mod signals;
pub mod snapshot;
pub mod switchboard;
pub mod tcp_proxy;
