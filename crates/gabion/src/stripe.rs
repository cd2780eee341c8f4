//! Some of a thing, so that threads that run side by side rarely write to the same cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there are of a thing.
const STRIPES: usize = 16;

/// One `T` for each sixteenth of the threads.
#[derive(Debug, Default)]
pub(crate) struct Striped<T>([CachePadded<T>; STRIPES]);

/// On cache lines of its own: two, since lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CachePadded<T>(T);

impl<T> Striped<T> {
    /// As many as there are stripes.
    pub(crate) fn of(mut make: impl FnMut() -> T) -> Striped<T> {
        Striped(std::array::from_fn(|_| CachePadded(make())))
    }

    /// The one of the calling thread, and of those that share its number.
    #[inline]
    pub(crate) fn own(&self) -> &T {
        &self.0[stripe()].0
    }

    /// All of them, always in the same order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|apart| &apart.0)
    }
}

/// The calling thread's number.
#[inline]
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            // ORDER: Relaxed; only the distinctness of the numbers matters.
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        stripe.get() % STRIPES
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_adds_up() {
        let striped: Striped<AtomicUsize> = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let add = || {
                    for _ in 0..1000 {
                        // ORDER: Relaxed; the end of the scope orders it before the look.
                        striped.own().fetch_add(1, Ordering::Relaxed);
                    }
                };
                scope.spawn(add);
            }
        });
        // ORDER: Relaxed, as above.
        let sum: usize = striped
            .all()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        assert_eq!(sum, 4000);
    }
}
