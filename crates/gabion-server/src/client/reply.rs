//! A reply of a server.

/// A reply of RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    Null,
    /// A short line.
    Simple(String),
    /// An error: its code and a sentence.
    Error(String),
    /// A whole number.
    Integer(i64),
    /// Yes or no.
    Boolean(bool),
    /// A number with a fraction, as it came.
    Double(String),
    /// A whole number of any length, as it came.
    BigNumber(String),
    /// Any bytes.
    Bulk(Vec<u8>),
    /// Text for people.
    Verbatim(Vec<u8>),
    /// A list.
    Array(Vec<Reply>),
    /// A set.
    Set(Vec<Reply>),
    /// Pairs.
    Map(Vec<(Reply, Reply)>),
    /// A message that nobody asked for.
    Push(Vec<Reply>),
}
