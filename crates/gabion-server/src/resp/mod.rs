//! Redis' protocol, RESP2 and RESP3: requests are parsed, replies are written.

pub(crate) mod parse;
pub(crate) mod reply;
