//! Iterators. A page is a byte, 1 if the range ends with it, and texts: key, value, key, value.

use gabion_bindings::packed::push_text;
use gabion_bindings::{Failure, Pages, Reader};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jboolean, jint, jlong};

use crate::border::{array, bytes, call};
use crate::store::{handle, number};
use crate::table;
use crate::write::bounds;

/// The pairs of a keyspace from a bound on and below another one, as a view has them; 0 for the
/// store as it is now.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_pages<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keyspace: jlong,
    lower: JByteArray<'l>,
    upper: JByteArray<'l>,
    is_reversed: jboolean,
) -> jlong {
    call(&mut env, |env| {
        let bounds = bounds(env, &lower, &upper)?;
        let own = table::keyspace(number(keyspace))?;
        let reader = match view {
            0 => Reader::now(own.db()),
            view => table::view(number(view))?.of(&own)?.clone(),
        };
        let pages = Pages::new(own.db(), &own.keyspace, reader, bounds, is_reversed);
        Ok(handle(table::add_pages(pages)?))
    })
}

/// The next page: up to so many pairs, and not many more bytes than that.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_page<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    pages: jlong,
    count: jint,
    size: jint,
) -> JByteArray<'l> {
    call(&mut env, |env| {
        let pages = table::pages(number(pages))?;
        let mut pages = pages.try_lock().map_err(|_| Failure::Busy)?;
        let count = u32::try_from(count).unwrap_or_default();
        let size = usize::try_from(size).unwrap_or_default();
        let mut page = vec![0];
        let is_last = pages.page(count, |key, value| {
            push_text(&mut page, key);
            push_text(&mut page, value);
            page.len() < size
        })?;
        page[0] = u8::from(is_last);
        array(env, &page)
    })
}

/// Lets the next page begin at a key.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_seek<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    pages: jlong,
    key: JByteArray<'l>,
) {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        let pages = table::pages(number(pages))?;
        pages.try_lock().map_err(|_| Failure::Busy)?.seek(&key);
        Ok(())
    });
}
