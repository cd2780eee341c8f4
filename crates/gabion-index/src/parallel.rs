//! Work in parts, by several threads.

use std::panic::resume_unwind;
use std::thread::Builder;

use parking_lot::Mutex;

use crate::Result;

/// What a function makes of all parts, each in a thread of its own if there are several and the
/// system gives them.
pub(crate) fn by_threads<P: Send, T: Send>(
    parts: Vec<P>,
    make: impl Fn(P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if parts.len() <= 1 {
        return parts.into_iter().map(make).collect();
    }
    let parts: Vec<_> = parts
        .into_iter()
        .map(|part| Mutex::new(Some(part)))
        .collect();
    let make = |part: &Mutex<Option<P>>| make(part.lock().take().expect("made once"));
    std::thread::scope(|scope| {
        let make = &make;
        let threads: Vec<_> = parts
            .iter()
            .map(|part| (part, Builder::new().spawn_scoped(scope, move || make(part))))
            .collect();
        let joined = threads.into_iter().map(|(part, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => make(part),
        });
        joined.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn parts_keep_their_order_and_an_error_is_told() {
        for count in [0, 1, 2, 9] {
            let doubled = by_threads((0..count).collect(), |part: u64| Ok(part * 2)).unwrap();
            assert_eq!(doubled, (0..count).map(|part| part * 2).collect::<Vec<_>>());
        }
        let odd = |part: u64| match part {
            3 => Err(Error::damaged("a part", part)),
            part => Ok(part),
        };
        assert!(matches!(
            by_threads((0..5).collect(), odd),
            Err(Error::Damaged { offset: 3, .. })
        ));
    }
}
