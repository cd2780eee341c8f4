//! Work that is done by several threads at the same time.

use std::panic::resume_unwind;
use std::thread::Builder;

/// Calls `work` with each of some parts, side by side, and returns what it says of them in their
/// order. The first one is done by this thread, and so are those for which the system gives none:
/// later, but not left out. A panic is passed on.
pub(crate) fn side_by_side<P: Copy + Send, T: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let mut parts = parts.into_iter();
        let first = parts.next();
        let others: Vec<_> = parts
            .map(|part| {
                let thread = Builder::new().spawn_scoped(scope, move || work(part));
                thread.map_err(|_| part)
            })
            .collect();
        let first = first.map(work);
        let others = others.into_iter().map(|other| match other {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(part) => work(part),
        });
        first.into_iter().chain(others).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_parts_are_worked_on_at_the_same_time_and_in_order() {
        for parts in 0..5 {
            let meet = Barrier::new(parts);
            let squares = side_by_side(0..parts, |part| {
                meet.wait();
                part * part
            });
            assert!(squares.into_iter().eq((0..parts).map(|part| part * part)));
        }
    }

    #[test]
    fn a_panic_is_passed_on() {
        for bad in 0..3 {
            let work = |part| assert!(part != bad, "part {part}");
            let panic = catch_unwind(|| side_by_side(0..3, work)).unwrap_err();
            let said = panic.downcast_ref::<String>().unwrap();
            assert_eq!(*said, format!("part {bad}"));
        }
    }
}
