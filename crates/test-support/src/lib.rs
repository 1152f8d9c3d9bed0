//! Processes, programs and databases for checks (`xtask`) and measurements (`bench`).

pub mod database;
pub mod process;
pub mod programs;
pub mod run;
