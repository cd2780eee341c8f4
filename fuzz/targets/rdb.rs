//! Fuzzes the reader of files of Redis and Valkey, which stores nothing here. A checksum of 0, as
//! the seeds have, is none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let config = gabion_server::Config::new("not opened");
    // An error is as good an end as any other.
    let _ = gabion_server::check_rdb(&config, bytes, &mut |_| ());
});
