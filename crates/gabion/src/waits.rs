//! For how long readers are kept out.

use gabion_flex::ReaderWaits;

use crate::Db;

impl Db {
    /// How often and for how long changes and the background could keep out readers of what is not
    /// cached, since the store was opened: readers of what is cached wait for nothing. `None` for
    /// an engine other than [`Engine::Flex`](crate::Engine::Flex).
    pub fn reader_waits(&self) -> Option<ReaderWaits> {
        self.handle().reader_waits()
    }
}
