//! Iterators: a walk through a range, which hands out pages of pairs.
//!
//! A page is a byte, 1 if the range ends with it, and texts as [`crate::packed`] has them: key,
//! value, key, value; or only those that are wanted.

use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};

use gabion_bindings::range::Bounds;
use gabion_bindings::{Failure, Result, Walk};
use napi::Env;
use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;

use crate::failures::call;
use crate::job::{Bytes, Promised, promise};
use crate::packed::push_text;
use crate::snapshot::snapshot_closed;
use crate::view::flags;

/// Where the next page begins.
enum Next {
    /// At the first pair of the range.
    First,
    /// At a key, or at the first one after it.
    Key(Vec<u8>),
    /// Behind the pair at which the walk stands.
    Behind,
    /// Nowhere.
    End,
}

struct State {
    walk: Walk,
    bounds: Bounds,
    bits: u32,
    next: Next,
}

/// An iterator.
#[napi]
pub struct Pairs {
    /// None once it is closed.
    state: Arc<Mutex<Option<State>>>,
}

impl Pairs {
    pub(crate) fn new(walk: Walk, bounds: Bounds, bits: u32) -> Pairs {
        let state = State {
            walk,
            bounds,
            bits,
            next: Next::First,
        };
        Pairs {
            state: Arc::new(Mutex::new(Some(state))),
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
                let key = key.to_vec();
                state.next = match state.bounds.contains(&key) {
                    true => Next::Key(key),
                    false => Next::End,
                };
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
    fn go(&mut self) -> Result<bool> {
        let is_reversed = self.bits & flags::REVERSE != 0;
        // A failed step has no next one.
        match (std::mem::replace(&mut self.next, Next::End), is_reversed) {
            (Next::First, false) => self.walk.first(),
            (Next::First, true) => self.walk.last(),
            (Next::Key(key), false) => self.walk.seek(&key),
            (Next::Key(key), true) => self.walk.seek_back(&key),
            (Next::Behind, false) => self.walk.forward(),
            (Next::Behind, true) => self.walk.back(),
            (Next::End, _) => Ok(false),
        }
    }

    fn page(&mut self, count: u32, bytes: usize) -> Result<Bytes> {
        let mut page = vec![0];
        for _ in 0..count {
            if !self.go()? {
                page[0] = 1;
                break;
            }
            self.next = Next::Behind;
            for (bit, text) in [
                (flags::KEYS, self.walk.key()),
                (flags::VALUES, self.walk.value()),
            ] {
                if self.bits & bit != 0 {
                    push_text(&mut page, text);
                }
            }
            if page.len() >= bytes {
                break;
            }
        }
        Ok(Bytes(page))
    }
}
