//! A server on a free port, spoken to by a small client.
