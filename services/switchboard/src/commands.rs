//! The subcommands: each module defines the arguments of one and runs it.

pub(crate) mod approvals;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod contexts;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod edge;
pub(crate) mod gateway;
pub(crate) mod login;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod npcs;
pub(crate) mod read_skills_book;
pub(crate) mod skills;
pub(crate) mod status;
pub(crate) mod stdio;
pub(crate) mod talk;
pub(crate) mod templates;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod voices;
