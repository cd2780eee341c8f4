//! The JNI boundary: turns failures into exceptions, and copies bytes and text.

use std::any::Any;
use std::ops::Deref;

use gabion_bindings::{Code, Failure};
use jni::errors::ErrorPolicy;
use jni::objects::{JByteArray, JByteBuffer, JString, JThrowable, JValue};
use jni::refs::Reference;
use jni::{Env, EnvUnowned, jni_sig, jni_str};

/// The version of the natives: the Java classes refuse a library that has another one.
pub const ABI_VERSION: i32 = 1;

/// Why a call ends with an exception.
#[derive(Debug)]
pub enum Thrown {
    /// A failure, which becomes a `GabionException`.
    Failure(Failure),
    /// The VM refused, and most often has an exception ready.
    Vm(jni::errors::Error),
}

impl<F: Into<Failure>> From<F> for Thrown {
    fn from(failure: F) -> Thrown {
        Thrown::Failure(failure.into())
    }
}

/// Result of what crosses the border.
pub type Result<T> = std::result::Result<T, Thrown>;

/// Names the VM's refusals, as `?` knows those of the store.
pub(crate) trait OfVm<T> {
    /// The same as a result of the border.
    fn of_vm(self) -> Result<T>;
}

impl<T> OfVm<T> for jni::errors::Result<T> {
    fn of_vm(self) -> Result<T> {
        self.map_err(Thrown::Vm)
    }
}

/// Runs the body of a native function. A failure or a panic becomes an exception, and the function
/// returns what Java ignores then.
pub fn call<'l, T: Default>(
    env: &mut EnvUnowned<'l>,
    body: impl FnOnce(&mut Env<'l>) -> Result<T>,
) -> T {
    let outcome = env.with_env(|env| body(env).map_err(Fallen));
    outcome.resolve::<ThrowGabion>()
}

/// [`Thrown`] with the conversion that `with_env` asks for.
struct Fallen(Thrown);

impl From<jni::errors::Error> for Fallen {
    fn from(error: jni::errors::Error) -> Fallen {
        Fallen(Thrown::Vm(error))
    }
}

struct ThrowGabion;

impl<T: Default> ErrorPolicy<T, Fallen> for ThrowGabion {
    type Captures<'u: 'n, 'n> = ();

    fn on_error<'u: 'n, 'n>(
        env: &mut Env<'u>,
        _captures: &mut (),
        Fallen(thrown): Fallen,
    ) -> jni::errors::Result<T> {
        // An exception that is there, such as a lack of memory, tells more.
        if !env.exception_check() {
            let failure = match thrown {
                Thrown::Failure(failure) => failure,
                Thrown::Vm(error) => {
                    Failure::Panicked(format!("the Java VM refused the call: {error}"))
                }
            };
            throw(env, &failure)?;
        }
        Ok(T::default())
    }

    fn on_panic<'u: 'n, 'n>(
        env: &mut Env<'u>,
        _captures: &mut (),
        payload: Box<dyn Any + Send>,
    ) -> jni::errors::Result<T> {
        if !env.exception_check() {
            // Resumed inside of the guard, which knows how to read it.
            let failure = gabion_bindings::guard(|| -> gabion_bindings::Result<()> {
                std::panic::resume_unwind(payload)
            });
            if let Err(failure) = failure {
                throw(env, &failure)?;
            }
        }
        Ok(T::default())
    }
}

/// Throws the exception of a failure: `GabionException.of` knows which it is.
fn throw(env: &mut Env<'_>, failure: &Failure) -> jni::errors::Result<()> {
    let class = env.find_class(jni_str!("io/gabion/GabionException"))?;
    let sentence = env.new_string(failure.to_string())?;
    let arguments = [
        JValue::Int(failure.code() as i32),
        JValue::Object(&sentence),
    ];
    let made = env.call_static_method(
        class,
        jni_str!("of"),
        jni_sig!("(ILjava/lang/String;)Lio/gabion/GabionException;"),
        &arguments,
    )?;
    let exception = env.cast_local::<JThrowable>(made.l()?)?;
    env.throw(exception)
}

/// Bytes of Java's, copied: few of them to the stack.
pub enum Copied {
    /// Bytes and how many they are.
    Few([i8; FEW_BYTES_MAX], usize),
    /// More than that.
    Many(Vec<i8>),
}

/// Most bytes that are copied to the stack: most keys are shorter.
const FEW_BYTES_MAX: usize = 128;

impl Copied {
    fn with_len(len: usize) -> Copied {
        match len {
            0..=FEW_BYTES_MAX => Copied::Few([0; FEW_BYTES_MAX], len),
            _ => Copied::Many(vec![0; len]),
        }
    }

    fn as_mut(&mut self) -> &mut [i8] {
        match self {
            Copied::Few(bytes, len) => &mut bytes[..*len],
            Copied::Many(bytes) => bytes,
        }
    }
}

impl Deref for Copied {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = match self {
            Copied::Few(bytes, len) => &bytes[..*len],
            Copied::Many(bytes) => bytes,
        };
        // SAFETY: a signed byte is a byte, of the same size and alignment, and any is one.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}

/// The bytes of an array.
///
/// # Errors
/// [`Code::InvalidArgument`] for null.
pub fn bytes(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Copied> {
    match optional_bytes(env, array)? {
        Some(bytes) => Ok(bytes),
        None => Err(Failure::argument("a key or a value is null").into()),
    }
}

/// The first bytes of an array.
///
/// # Errors
/// As [`bytes`]; [`Code::InvalidArgument`] if it has fewer.
pub fn first_bytes(env: &Env<'_>, array: &JByteArray<'_>, len: i32) -> Result<Copied> {
    if array.is_null() {
        return Err(Failure::argument("a key or a value is null").into());
    }
    let own = array.len(env).of_vm()?;
    let len = usize::try_from(len).ok().filter(|len| *len <= own);
    let len = len.ok_or_else(|| Failure::argument("the range is not within the array"))?;
    let mut copied = Copied::with_len(len);
    array.get_region(env, 0, copied.as_mut()).of_vm()?;
    Ok(copied)
}

/// The bytes of an array, or none for null.
///
/// # Errors
/// Those of the VM.
pub fn optional_bytes(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Option<Copied>> {
    if array.is_null() {
        return Ok(None);
    }
    let mut copied = Copied::with_len(array.len(env).of_vm()?);
    array.get_region(env, 0, copied.as_mut()).of_vm()?;
    Ok(Some(copied))
}

/// Where a part of a direct buffer lies.
///
/// # Errors
/// [`Code::InvalidArgument`] for null, a buffer that is not direct, and a part that is not within
/// it.
fn lent(env: &Env<'_>, buffer: &JByteBuffer<'_>, at: i32, len: i32) -> Result<(*mut u8, usize)> {
    let refused = || Thrown::from(Failure::argument("the buffer is null or not direct"));
    if buffer.is_null() {
        return Err(refused());
    }
    let capacity = env.get_direct_buffer_capacity(buffer);
    let capacity = capacity.map_err(|_| refused())?;
    let part = usize::try_from(at).ok().zip(usize::try_from(len).ok());
    let part = part.filter(|(at, len)| at + len <= capacity);
    let (at, len) = part.ok_or_else(|| Failure::argument("the range is not within the buffer"))?;
    if capacity == 0 {
        return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
    }
    let address = env.get_direct_buffer_address(buffer);
    let address = address.map_err(|_| refused())?;
    // SAFETY: the VM says that the buffer has `capacity` bytes from there on.
    Ok((unsafe { address.add(at) }, len))
}

/// The bytes of a part of a direct buffer.
///
/// # Errors
/// [`Code::InvalidArgument`] for null, a buffer that is not direct, and a part that is not within
/// it.
pub fn buffer_bytes(env: &Env<'_>, buffer: &JByteBuffer<'_>, at: i32, len: i32) -> Result<Copied> {
    let (from, len) = lent(env, buffer, at, len)?;
    let mut copied = Copied::with_len(len);
    let to = copied.as_mut().as_mut_ptr();
    // SAFETY: `lent` has checked the part, and the buffer lives as long as the call that has it;
    // the copy is new.
    unsafe { std::ptr::copy_nonoverlapping(from.cast_const().cast(), to, len) };
    Ok(copied)
}

/// Fills the beginning of a part of a direct buffer, if all bytes fit into it.
///
/// # Errors
/// As [`buffer_bytes`].
pub fn fill_buffer(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    at: i32,
    room: i32,
    bytes: &[u8],
) -> Result<()> {
    let (to, room) = lent(env, buffer, at, room)?;
    if bytes.len() <= room {
        // SAFETY: `lent` has checked the part, and the bytes fit.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
    Ok(())
}

/// A new array.
///
/// # Errors
/// [`Code::Limit`] where Java has no arrays of that length.
pub fn array<'l>(env: &mut Env<'l>, bytes: &[u8]) -> Result<JByteArray<'l>> {
    if i32::try_from(bytes.len()).is_err() {
        let len = bytes.len();
        let why =
            format!("the reply has {len} bytes, more than an array can have; ask for less at once");
        return Err(Failure::Refused(Code::Limit, why).into());
    }
    env.byte_array_from_slice(bytes).of_vm()
}

/// A text.
///
/// # Errors
/// [`Code::InvalidArgument`] for null.
pub fn text(env: &Env<'_>, text: &JString<'_>) -> Result<String> {
    match text.is_null() {
        true => Err(Failure::argument("a string is null").into()),
        false => text.try_to_string(env).of_vm(),
    }
}
