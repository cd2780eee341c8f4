//! Iterators: a walk through a range, which hands out pages of pairs.
//!
//! A page is a byte, 1 if the range ends with it, and texts as [`crate::packed`] has them: key,
//! value, key, value; or only those that are wanted.

use std::sync::{Arc, Mutex};

use gabion_bindings::packed::push_text;
use gabion_bindings::{Failure, Pages, Result};
use napi::Env;
use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;

use crate::failures::call;
use crate::job::{Bytes, Promised, promise};
use crate::snapshot::snapshot_closed;
use crate::view::flags;

struct State {
    pages: Pages,
    bits: u32,
}

/// An iterator.
#[napi]
pub struct Pairs {
    /// None once it is closed.
    state: Arc<Mutex<Option<State>>>,
}

impl Pairs {
    pub(crate) fn new(pages: Pages, bits: u32) -> Pairs {
        Pairs {
            state: Arc::new(Mutex::new(Some(State { pages, bits }))),
        }
    }

    /// An iterator of a snapshot that is closed. Users see that as the error of whatever they read.
    pub(crate) fn closed() -> Pairs {
        Pairs {
            state: Arc::default(),
        }
    }
}

#[napi]
impl Pairs {
    /// The next pairs: up to `count`, and not many more bytes than `bytes`.
    #[napi]
    pub fn next(&self, count: u32, bytes: u32) -> Promised<Bytes> {
        let state = Arc::clone(&self.state);
        promise(move || {
            let mut state = state.try_lock().map_err(|_| Failure::Busy)?;
            let state = state.as_mut().ok_or_else(snapshot_closed)?;
            state.page(count, bytes as usize)
        })
    }

    /// Lets the next page begin at a key.
    #[napi]
    pub fn seek(&self, env: &Env, key: BufferSlice<'_>) -> napi::Result<()> {
        call(env, || {
            let mut state = self.state.try_lock().map_err(|_| Failure::Busy)?;
            if let Some(state) = &mut *state {
                state.pages.seek(&key);
            }
            Ok(())
        })
    }

    /// Gives up what it holds of the store.
    #[napi]
    pub fn close(&self, env: &Env) -> napi::Result<()> {
        call(env, || {
            let mut state = self.state.try_lock().map_err(|_| Failure::Busy)?;
            state.take();
            Ok(())
        })
    }
}

impl State {
    fn page(&mut self, count: u32, bytes: usize) -> Result<Bytes> {
        let bits = self.bits;
        let mut page = vec![0];
        let is_last = self.pages.page(count, |key, value| {
            for (bit, text) in [(flags::KEYS, key), (flags::VALUES, value)] {
                if bits & bit != 0 {
                    push_text(&mut page, text);
                }
            }
            page.len() < bytes
        })?;
        page[0] = u8::from(is_last);
        Ok(Bytes(page))
    }
}
