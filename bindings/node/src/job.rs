//! Jobs: work on a thread of libuv's pool, and the promise of its answer.

use gabion_bindings::{Failure, guard};
use napi::bindgen_prelude::{AsyncTask, BufferSlice, ToNapiValue, TypeName};
use napi::{Env, ScopedTask};

use crate::failures::thrown;

/// Buffers from this size on lie where the job made them; smaller ones are copied into
/// JavaScript's memory, since one that lies outside takes longer to make and to collect.
const OUTSIDE_BYTES_MIN: usize = 32 << 10;

/// What a job does.
type Work<T> = Box<dyn FnOnce() -> Result<T, Failure> + Send>;

/// Work that is done once.
pub struct Job<T> {
    work: Option<Work<T>>,
}

/// The promise of a job's answer.
pub type Promised<T> = AsyncTask<Job<T>>;

/// Has work done by a thread of the pool.
pub fn promise<T: Answer>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Promised<T> {
    AsyncTask::new(Job {
        work: Some(Box::new(work)),
    })
}

/// What a job answers.
pub trait Answer: Send + 'static {
    /// The same in JavaScript.
    type Told<'a>: ToNapiValue + TypeName;

    /// Tells it, on JavaScript's thread.
    ///
    /// # Errors
    /// Those of JavaScript, such as a lack of memory.
    fn tell(self, env: &Env) -> napi::Result<Self::Told<'_>>;
}

/// Bytes, which become a buffer.
pub struct Bytes(pub Vec<u8>);

impl Answer for Bytes {
    type Told<'a> = BufferSlice<'a>;

    fn tell(self, env: &Env) -> napi::Result<BufferSlice<'_>> {
        match self.0.len() {
            0..OUTSIDE_BYTES_MIN => BufferSlice::copy_from(env, self.0),
            _ => BufferSlice::from_data(env, self.0),
        }
    }
}

impl<T: Answer> Answer for Option<T> {
    type Told<'a> = Option<T::Told<'a>>;

    fn tell(self, env: &Env) -> napi::Result<Option<T::Told<'_>>> {
        self.map(|answer| answer.tell(env)).transpose()
    }
}

impl Answer for () {
    type Told<'a> = ();

    fn tell(self, _env: &Env) -> napi::Result<()> {
        Ok(())
    }
}

impl Answer for String {
    type Told<'a> = String;

    fn tell(self, _env: &Env) -> napi::Result<String> {
        Ok(self)
    }
}

impl<'a, T: Answer> ScopedTask<'a> for Job<T> {
    type Output = Result<T, Failure>;
    type JsValue = T::Told<'a>;

    fn compute(&mut self) -> napi::Result<Result<T, Failure>> {
        let work = self.work.take();
        Ok(guard(|| match work {
            Some(work) => work(),
            None => Err(Failure::Busy),
        }))
    }

    fn resolve(&mut self, env: &'a Env, answer: Result<T, Failure>) -> napi::Result<T::Told<'a>> {
        match answer {
            Ok(answer) => answer.tell(env),
            Err(failure) => Err(thrown(env, &failure)),
        }
    }
}
