//! The engines behind the facade.

pub(crate) mod wip;
