//! The header in `include` is what cbindgen makes of the sources.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(here, config)
        .expect("the sources are ones that cbindgen reads")
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let header = here.join("include/gabion.h");
    if std::env::var_os("GABION_WRITE_HEADER").is_some() {
        #[expect(clippy::disallowed_methods, reason = "no file of a store")]
        std::fs::write(&header, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(
        made == committed,
        "include/gabion.h is out of date: run `GABION_WRITE_HEADER=1 cargo test -p gabion-c \
         --test header`"
    );
}
