//! Errors of JavaScript: the sentence of a failure, and a code in the manner of `abstract-level`.

use gabion_bindings::{Code, Failure, guard};
use napi::Env;
use napi::JsValue;
use napi::bindgen_prelude::JsObjectValue;

/// The code of an error: that of `abstract-level` where there is one, or `LEVEL_` and the name.
pub fn level_code(code: Code) -> String {
    match code {
        Code::Closed => "LEVEL_DATABASE_NOT_OPEN".to_owned(),
        Code::Unsupported => "LEVEL_NOT_SUPPORTED".to_owned(),
        Code::Media => "LEVEL_IO_ERROR".to_owned(),
        Code::Ended => "LEVEL_TRANSACTION_NOT_OPEN".to_owned(),
        other => format!("LEVEL_{}", other.name()),
    }
}

/// What is thrown for a failure.
pub fn thrown(env: &Env, failure: &Failure) -> napi::Error {
    let error = || {
        let mut error = env.create_error(napi::Error::from_reason(failure.to_string()))?;
        error.set_named_property("code", level_code(failure.code()))?;
        Ok::<_, napi::Error>(error.to_unknown().into())
    };
    error().unwrap_or_else(|refused| refused)
}

/// Runs what answers at once.
///
/// # Errors
/// What is to be thrown.
pub fn call<T>(env: &Env, body: impl FnOnce() -> Result<T, Failure>) -> napi::Result<T> {
    guard(body).map_err(|failure| thrown(env, &failure))
}
